"""One rank reads, its siblings get the same value, and none of them goes on alone.

    leader                                sibling
    read(); an error becomes the record   waits for the header, on the leader directly
    header, the record's size ─────────▶
    record ────────────────────────────▶  what the tensors will be, or the leader's error
    tensors, as bytes, one by one ─────▶
    use(value)                            use(value)
    waits ◀──────── agree: who could not use it? ────────▶ waits
    returns or raises                     returns or raises

The long wait, for the header, ends at once when the leader dies. Every other one ends with the
timeout at the latest; under gloo whoever gives up closes its connections, so that those who wait
for it hear of that. They agree because a send proves nothing: a leader whose siblings are gone
would leave its message with the network and enter the forward pass alone.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import AllreduceOptions, BroadcastOptions

from rlconform.contract import DataPlaneError
from rlconform.plane.tensor_message import ErrorText, Record, TensorMessage, put_together

T = TypeVar("T")
R = TypeVar("R")

#: torch takes a timeout of zero for none at all.
_SHORTEST_WAIT = timedelta(milliseconds=1)
_TAG = 0


class SourceFailed(DataPlaneError):
    """The leader raised where it should have read; the message names its error."""


class SourceLookupFailed(SourceFailed, LookupError):
    """The leader raised a ``LookupError``."""


class ReplicaFailed(DataPlaneError):
    """Another rank could not use what the leader read, so that no rank goes on with it."""


class GroupLost(DataPlaneError, ConnectionError):
    """A rank died or did not come within the timeout; the group can't be used any more."""


class ReplicaGroup:
    """The ranks that work on one DP shard, over a ``torch.distributed`` group; its first one leads.

    Example:
        group = dist.new_group(ranks, backend="gloo")
        siblings = SiblingGroup(group, timeout_s=120)
        made = siblings.share(read, use)  # on every rank; read() runs on the leader only
        dist.destroy_process_group(group)

    Calls are collective: every rank makes the same ones in the same order, from one thread. Give it
    a group of its own: after ``GroupLost`` its ranks no longer agree on which message comes next,
    and every later call raises ``GroupLost`` at once.

    Args:
        group: A group of which this process is a rank, of a backend that takes CPU tensors.
        timeout_s: Seconds from the start of a call after which this rank waits no longer. All of
            its siblings' delays fall into it, and the leader's reading.

    Raises:
        ValueError: This process is no rank of the group, or ``timeout_s`` not positive and finite.
    """

    def __init__(self, group: dist.ProcessGroup, *, timeout_s: float = 300.0) -> None:
        self.rank: int = dist.get_rank(group)
        self.size: int = dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("this process is not a rank of the group")
        if not 0 < timeout_s < math.inf:
            raise ValueError(f"timeout_s must be positive and finite, got {timeout_s!r}")
        self.timeout_s = timeout_s
        self._group = group
        self._lost = ""  # why the group can't be used

    @property
    def leads(self) -> bool:
        """Whether this rank reads for the others."""
        return self.rank == 0

    def share(self, read: Callable[[], T], use: Callable[[T], R]) -> R:
        """What ``use`` makes, here, of the value that ``read`` gave on the leader.

        Args:
            read: Run by the leader only. Its value is any that pickles. Dense tensors in it, at
                whatever depth, travel as bytes; siblings get them in CPU memory.
            use: Run by every rank, the leader on its very value. No collectives of the group.

        Raises:
            BaseException: What ``read`` raised, on the leader; what ``use`` raised, on that rank.
            LeaderFailed: ``read`` raised on the leader, or gave what can't be sent. It is a
                ``LookupError`` as well where the leader's was one.
            SiblingFailed: ``use`` raised on another rank.
            GroupLost: A rank is dead or late, in this call or an earlier one.
        """
        if self._lost:
            raise GroupLost(f"the group can't be used any more: {self._lost}")
        self._lost = "an earlier call was cut short"  # until all ranks came to its end
        deadline = time.monotonic() + self.timeout_s
        value = self._send(read, deadline) if self.leads else self._receive(deadline)
        made = _attempt(lambda: use(value()))
        failed = self._agree(made.error is not None, deadline)
        self._lost = ""
        if made.error is not None:
            raise made.error
        if failed:
            raise ReplicaFailed(f"ranks {failed} of {self.size} could not use what rank 0 read")
        result: R = made.value
        return result

    def _send(self, read: Callable[[], T], deadline: float) -> Callable[[], T]:
        """Read, and tell the siblings what came of it. Raises what ``read`` raised."""
        taken = _attempt(lambda: _with_parcel(read()))
        if time.monotonic() >= deadline:  # nobody listens any more
            self._lost = f"rank 0 took over {self.timeout_s:g} s to read"
            raise taken.error or GroupLost(self._lost)
        if taken.error is not None:
            self._send_record(Record(ErrorText.of(taken.error)), deadline)
            self._lost = ""
            raise taken.error
        value, parcel = taken.value
        self._send_record(parcel.record, deadline)
        for tensor in parcel.tensors:
            self._broadcast(tensor, deadline)
        return lambda: value

    def _send_record(self, record: Record, deadline: float) -> None:
        data = torch.frombuffer(bytearray(pickle.dumps(record)), dtype=torch.uint8)
        header = torch.tensor([data.numel()])
        for sibling in range(1, self.size):
            self._send_to(sibling, header, deadline)
        self._broadcast(data, deadline)

    def _receive(self, deadline: float) -> Callable[[], Any]:
        """What puts the leader's value together, once all of it is here. Raises its error."""
        header = torch.zeros(1, dtype=torch.int64)
        self._finish(lambda _left: self._group.recv([header], 0, _TAG), deadline)
        data = torch.empty(int(header), dtype=torch.uint8)
        self._broadcast(data, deadline)
        record: Record = pickle.loads(data.numpy().tobytes())
        if record.error is not None:
            self._lost = ""
            raise _leaders(record.error)
        tensors = [torch.empty(shape, dtype=dtype) for dtype, shape in record.tensors]
        for tensor in tensors:
            self._broadcast(tensor, deadline)
        return partial(put_together, record.structure, tensors)

    def _send_to(self, sibling: int, header: Tensor, deadline: float) -> None:
        self._finish(lambda _left: self._group.send([header], sibling, _TAG), deadline)

    def _broadcast(self, tensor: Tensor, deadline: float) -> None:
        """Fill a contiguous tensor from the leader's, as bytes: backends lack some dtypes."""
        if tensor.numel():
            data = [tensor.view(-1).view(torch.uint8)]
            options = BroadcastOptions()
            self._finish(lambda left: self._group.broadcast(data, _timed(options, left)), deadline)

    def _agree(self, failed: bool, deadline: float) -> list[int]:
        """The ranks that failed, the same list on every rank."""
        flags = torch.zeros(self.size, dtype=torch.int64)
        flags[self.rank] = int(failed)
        options = AllreduceOptions()
        self._finish(lambda left: self._group.allreduce([flags], _timed(options, left)), deadline)
        ranks: list[int] = flags.nonzero().flatten().tolist()
        return ranks

    def _finish(self, start: Callable[[timedelta], Any], deadline: float) -> None:
        """Run what ``start`` begins; ``GroupLost`` if it fails or isn't through in time."""
        left = max(timedelta(seconds=deadline - time.monotonic()), _SHORTEST_WAIT)
        try:
            start(left).wait(left)
        except RuntimeError as error:  # torch's for a rank that is dead and for one that is late
            self._lost = (
                f"a rank of {self.size} is dead, or did not come within {self.timeout_s:g} s"
            )
            raise GroupLost(f"{self._lost}: {error}") from error


def _timed(options: Any, left: timedelta) -> Any:
    """A collective's options with its timeout, so that it ends by itself.

    One that only its waiter gave up would hold up whoever destroys the group, for as long as the
    group's own timeout lets it.
    """
    options.timeout = left
    options.asyncOp = True
    return options


@dataclass(frozen=True)
class _Outcome:
    """A value, or the error that came in its place."""

    value: Any = None
    error: BaseException | None = None


def _attempt(step: Callable[[], Any]) -> _Outcome:
    try:
        return _Outcome(value=step())
    except BaseException as error:  # noqa: BLE001 - whatever it is, an interrupt too: siblings wait
        return _Outcome(error=error)


def _with_parcel(value: T) -> tuple[T, TensorMessage]:
    """The value, and all that is sent of it, made ready before the siblings hear of anything."""
    return value, TensorMessage.of(value)


def _leaders(error: ErrorText) -> SourceFailed:
    kind = SourceLookupFailed if error.is_lookup else SourceFailed
    return kind(f"rank 0 of the group raised {error.name}: {error.message}")
