"""Broadcasts a value within a replica (the ranks of one DP shard), from the src rank to all ranks.

    src rank (0)                          other ranks
    read(); an error becomes the header   wait for the header's size, point to point
    size of the header ────────────────▶
    header ────────────────────────────▶  what each tensor is, or the src rank's error
    tensors, as bytes, one by one ─────▶  from the device where the group can, else from the CPU
    use(value)                            use(value)
    waits ◀──── all-reduce: which ranks could not use it? ────▶ wait
    returns or raises                     return or raise

The long wait, for the header's size, ends at once when the src rank dies. Every other wait ends
with the timeout at the latest; under gloo a rank that gives up closes its connections, so the ranks
that wait for it notice. The all-reduce is needed because a finished send doesn't prove receipt:
without it a src rank whose peers are gone would enter the forward pass alone.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import AllreduceOptions, BroadcastOptions

from rlconform.contract import DataPlaneError
from rlconform.wire.serialization import TensorMessage

T = TypeVar("T")
R = TypeVar("R")

#: torch reads a timeout of zero as no timeout.
_SHORTEST_WAIT = timedelta(milliseconds=1)
_TAG = 0


class SourceFailed(DataPlaneError):
    """The src rank raised an error, so it sent no value; the message names the error."""


class SourceLookupFailed(SourceFailed, LookupError):
    """The src rank raised a ``LookupError``, so it sent no value."""


class ReplicaFailed(DataPlaneError):
    """Another rank could not use the value of the src rank, so ``share`` fails on every rank."""


class GroupLost(DataPlaneError, ConnectionError):
    """A rank died or did not respond within the timeout; the group can't be used any more."""


class _Header(NamedTuple):
    """The message before the tensors; a process that has torch can unpickle it.

    ``error`` is the error of the src rank; no tensors follow it. ``tensors`` describes each tensor
    that follows; ``structure`` is ``TensorMessage.structure``.
    """

    error: SourceFailed | None = None
    tensors: tuple[_TensorSpec, ...] = ()
    structure: bytes = b""


class _TensorSpec(NamedTuple):
    """A tensor that follows, and the types of the devices that it is sent from and belongs on."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    sent_from: str
    device: str


class ReplicaGroup:
    """The ranks of one DP shard in a ``torch.distributed`` group; rank 0 is the src (source) rank.

        group = dist.new_group(ranks, backend="gloo")
        replica = ReplicaGroup(group, timeout_s=120)
        result = replica.share(read, use)  # on every rank; read() runs on the src rank only

    Calls are collective: every rank must make the same calls in the same order, from one thread.
    Use a process group that nothing else uses: after ``GroupLost`` its ranks no longer agree on
    which message is next, and every later call raises ``GroupLost`` at once.

    Args:
        group: A group that contains this process, with a backend that takes CPU tensors. With
            another one for a device, as in ``"cpu:gloo,cuda:nccl"``, tensors are sent from there.
        timeout_s: Seconds from the start of a call after which this rank stops waiting; this
            includes the time in which the src rank reads and the delay of every other rank.

    ``ValueError`` if this process is no rank of the group, or ``timeout_s`` isn't positive and
    finite.
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
        self._devices = device_backends(dist.get_backend_config(group))
        self._lost = ""  # why the group can't be used

    @property
    def is_src(self) -> bool:
        """Whether this rank reads for the others."""
        return self.rank == 0

    def share(self, read: Callable[[], T], use: Callable[[T], R]) -> R:
        """Read a value on the src rank and return ``use(value)`` on every rank.

        ``read`` runs only on the src rank and may return anything that can be pickled. Dense
        tensors at any depth are sent as bytes; the other ranks get them on their own devices of the
        same type, and in CPU memory where they have none. ``use`` runs
        on every rank (on the src rank without a copy of the value) and must not use the group.

        Raises:
            BaseException: The error of ``read`` on the src rank, or of ``use`` on this rank.
            SourceFailed: ``read`` failed on the src rank, or returned a value that can't be sent;
                ``SourceLookupFailed`` if the src rank raised a ``LookupError``.
            ReplicaFailed: ``use`` raised on another rank.
            GroupLost: A rank is dead or late, in this call or an earlier one.
        """
        if self._lost:
            raise GroupLost(f"the group can't be used any more: {self._lost}")
        self._lost = "an earlier call was cut short"  # until all ranks have finished this one
        deadline = time.monotonic() + self.timeout_s
        value = self._send(read, deadline) if self.is_src else self._receive(deadline)
        used = _attempt(lambda: use(value()))
        failed = self._failed_ranks(used.error is not None, deadline)
        self._lost = ""
        if used.error is not None:
            raise used.error
        if failed:
            raise ReplicaFailed(f"ranks {failed} of {self.size} could not use what rank 0 read")
        result: R = used.value
        return result

    def _send(self, read: Callable[[], T], deadline: float) -> Callable[[], T]:
        """Read, and send the value or the error to the other ranks; raise the error of ``read``."""

        def read_and_split() -> tuple[T, TensorMessage]:
            value = read()
            return value, TensorMessage.of(value, self._devices)

        attempt = _attempt(read_and_split)
        if time.monotonic() >= deadline:  # no rank listens any more
            self._lost = f"rank 0 took over {self.timeout_s:g} s to read"
            raise attempt.error or GroupLost(self._lost)
        if attempt.error is not None:
            self._send_header(_Header(_as_text(attempt.error)), deadline)
            self._lost = ""
            raise attempt.error
        value, message = attempt.value
        specs = tuple(
            _TensorSpec(tensor.dtype, tuple(tensor.shape), tensor.device.type, device)
            for tensor, device in zip(message.tensors, message.devices, strict=True)
        )
        self._send_header(_Header(None, specs, message.structure), deadline)
        for tensor in message.tensors:
            self._broadcast(tensor, deadline)
        return lambda: value

    def _send_header(self, header: _Header, deadline: float) -> None:
        data = torch.frombuffer(bytearray(pickle.dumps(header)), dtype=torch.uint8)
        size = torch.tensor([data.numel()])
        for rank in range(1, self.size):
            self._finish(lambda _, rank=rank: self._group.send([size], rank, _TAG), deadline)  # type: ignore[misc]
        self._broadcast(data, deadline)

    def _receive(self, deadline: float) -> Callable[[], Any]:
        """Receive all parts of the src rank's value; return a function that rebuilds the value."""
        size = torch.zeros(1, dtype=torch.int64)
        self._finish(lambda _left: self._group.recv([size], 0, _TAG), deadline)
        data = torch.empty(int(size), dtype=torch.uint8)
        self._broadcast(data, deadline)
        header: _Header = pickle.loads(data.numpy().tobytes())
        if header.error is not None:
            self._lost = ""
            raise header.error
        tensors = [
            torch.empty(spec.shape, dtype=spec.dtype, device=spec.sent_from)
            for spec in header.tensors
        ]
        for tensor in tensors:
            self._broadcast(tensor, deadline)
        devices = [spec.device for spec in header.tensors]
        return TensorMessage(header.structure, tensors, devices).value

    def _broadcast(self, tensor: Tensor, deadline: float) -> None:
        """Broadcast a contiguous tensor from rank 0, as bytes because backends lack some dtypes."""
        if tensor.numel():
            data = [tensor.view(-1).view(torch.uint8)]
            options = BroadcastOptions()
            self._finish(lambda left: self._group.broadcast(data, _timed(options, left)), deadline)

    def _failed_ranks(self, failed: bool, deadline: float) -> list[int]:
        """Return the ranks that failed, by an all-reduce, so that all ranks get the same list."""
        flags = torch.zeros(self.size, dtype=torch.int64)
        flags[self.rank] = int(failed)
        options = AllreduceOptions()
        self._finish(lambda left: self._group.allreduce([flags], _timed(options, left)), deadline)
        ranks: list[int] = flags.nonzero().flatten().tolist()
        return ranks

    def _finish(self, start: Callable[[timedelta], Any], deadline: float) -> None:
        """Wait for the work that ``start`` returns; ``GroupLost`` if it fails or is late."""
        left = max(timedelta(seconds=deadline - time.monotonic()), _SHORTEST_WAIT)
        try:
            start(left).wait(left)
        except RuntimeError as error:  # torch raises it for a dead rank and for a late one
            self._lost = (
                f"a rank of {self.size} is dead, or did not respond within {self.timeout_s:g} s"
            )
            raise GroupLost(f"{self._lost}: {error}") from error


def device_backends(config: str) -> frozenset[str]:
    """Return the types of devices from which a group sends, given its backends.

    ``config`` is torch's, such as ``cpu:gloo,cuda:nccl``. Gloo copies a tensor to the CPU anyway.
    """
    backends = dict(pair.split(":", 1) for pair in config.split(","))
    return frozenset(device for device, backend in backends.items() if backend != "gloo")


def _timed(options: Any, left: timedelta) -> Any:
    """Set ``left`` as the timeout of one collective.

    If only the wait had a timeout, destroying the group would block until the group's timeout.
    """
    options.timeout = left
    options.asyncOp = True
    return options


def _as_text(error: BaseException) -> SourceFailed:
    """Convert an error to a ``SourceFailed`` with its text: another process may lack its class."""
    kind = SourceLookupFailed if isinstance(error, LookupError) else SourceFailed
    return kind(f"rank 0 of the group raised {type(error).__name__}: {error}")


class _Attempt(NamedTuple):
    """A function's value, or the error that it raised."""

    value: Any = None
    error: BaseException | None = None


def _attempt(step: Callable[[], Any]) -> _Attempt:
    try:
        return _Attempt(value=step())
    except BaseException as error:  # noqa: BLE001 - an interrupt too: the other ranks wait
        return _Attempt(error=error)
