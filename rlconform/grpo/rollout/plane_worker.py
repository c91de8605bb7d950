"""``PlaneRolloutWorker``: a rollout worker that writes its rows to a data plane.

    synchronous    driver ── problems ──▶ worker ── kv_first_write: columns, lengths, tags ──▶ plane
                          ◀── meta, row summaries ──┘

    asynchronous   driver ── generate_group ──▶ a thread per group ──▶ engine, token by token
                          ── refit ───────────▶ another thread: between two tokens of the others
                          ── abort ───────────▶ another thread: sets flags, returns at once
                   thread of a group ── kv_first_write ──▶ plane

The driver waits for ``collect_to_plane``, and not for ``generate_group``. A group's thread waits
for the engine's lock at each token, for the rewards of its rows, and for the plane in its one put.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path

from rlconform.contract import DataPlaneClient, DataPlaneError, KVBatchMeta, PlaneUnavailable
from rlconform.contract.fields import PER_TOKEN_FIELDS
from rlconform.grpo.algorithm.rewards import enough_rewards
from rlconform.grpo.failures import TooFewRewards
from rlconform.grpo.plane_traffic import Attach, PlaneActor
from rlconform.grpo.rewards.outcome import FailedReward
from rlconform.grpo.rollout.groups import (
    AbortedGroup,
    GroupRollout,
    GroupsInFlight,
    PartialGroup,
)
from rlconform.grpo.rollout.staleness_filter import END_WEIGHT_VERSION, WEIGHT_VERSION
from rlconform.grpo.rollout.turn_loop import RolloutRow, TurnLoop
from rlconform.grpo.rollout.worker import TOKEN_VERSIONS, Rollout, RolloutWorker, RowSummary
from rlconform.grpo.router_replay.trace import RouteTrace
from rlconform.grpo.tasks import Problem, Split
from rlconform.plane import kv_first_write, mint_sample_ids

#: Seconds that calls of the plane get to end when a run is over.
_LAST_CALLS_S = 10.0


class PlaneRolloutWorker(PlaneActor, RolloutWorker):
    """A rollout worker with a client of the plane."""

    _route_trace: RouteTrace | None = None

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._groups = GroupsInFlight()

    def attach(self, attach: Attach) -> None:
        """Attach to the running plane, after detaching from a previous one."""
        self._open_client(attach)

    def open_route_trace(self, folder: Path, run: str) -> None:
        """Write the trace of router replay from now on; ``RuntimeError`` without router replay."""
        if self.engine.route_format is None:
            raise RuntimeError("the engine doesn't record routes, so there is nothing to trace")
        self._route_trace = RouteTrace(folder, run, self.engine.route_format)

    def detach(self) -> None:
        """Detach from the plane, and end the trace of router replay. Idempotent."""
        super().detach()
        if self._route_trace is not None:
            self._route_trace.close()
            self._route_trace = None

    def collect_to_plane(
        self, problems: Sequence[Problem], split: Split, partition_id: str
    ) -> tuple[KVBatchMeta, list[RowSummary]]:
        """Collect rows and write them to the plane; ``RuntimeError`` before ``attach``."""
        client = self._attached()
        rollout = self.collect(problems, split)
        if split == "train":
            self._trace_routes(rollout)
        meta = kv_first_write(
            client,
            rollout.columns,
            rollout.sample_ids,
            partition_id,
            tags=[{WEIGHT_VERSION: rollout.weight_version} for _ in rollout.sample_ids],
        )
        return meta, rollout.summaries

    def generate_group(
        self,
        problem: Problem,
        group_id: str,
        partition_id: str,
        partial: PartialGroup | None = None,
        stamp: int = 0,
    ) -> GroupRollout | AbortedGroup:
        """Generate the G rows of a training problem, and write all their columns in one put.

        The rows are ``<group_id>_g0``, ``<group_id>_g1``, ...; their random numbers depend only on
        these ids. With ``group_id`` equal to ``problem.uid`` they are the rows of ``collect``. Each
        row gets the tags ``weight_version`` and ``end_weight_version``, the group's lowest and
        highest. Several threads may call this at once, for different groups.

        Args:
            problem: The problem.
            group_id: Name of the group, unique among the groups in flight in this worker.
            partition_id: The partition that gets the rows.
            partial: The group's tokens so far, from an ``AbortedGroup`` of any worker; the rows go
                on from there with the current weights.
            stamp: The driver's clock of the event log.

        Returns:
            ``AbortedGroup`` if the group was aborted before the put began, even if its last token
            was already generated; otherwise ``GroupRollout``.

        Raises:
            DataFailure: The problem is too long.
            ModelFailure: A row is empty, or has logits or logprobs that are NaN or infinite.
            TooFewRewards: Fewer than two of the group's rows got a reward.
            RewardFailure: A row got none, and ``reward_loop.on_failure`` is ``raise``.
            ValueError: The group is already in flight, or ``partial`` is of another group or
                problem.
            RuntimeError: ``attach`` was not called.

        If the put raises, the rows that it may have written are cleared before the error is
        raised; an error of the clearing is added to it as a note. After ``PlaneUnavailable`` they
        are cleared only if the group was aborted during the put: otherwise the caller clears them,
        and a plane that does not answer costs one wait less.
        """
        with self._groups.call():
            return self._generate_group(problem, group_id, partition_id, partial, stamp)

    def _generate_group(
        self,
        problem: Problem,
        group_id: str,
        partition_id: str,
        partial: PartialGroup | None,
        stamp: int,
    ) -> GroupRollout | AbortedGroup:
        client, loop = self._attached(), self._loop("train")
        self.exchange_stamps(stamp)
        with self._groups.enter(group_id) as aborted:
            rows = self._rows_of_group(loop, problem, group_id, partial)
            self._answer(loop, rows, "train", aborted.done, aborted)
            if aborted.done():
                rest = PartialGroup(group_id, tuple(rows))
                return AbortedGroup(rest, self.exchange_stamps(stamp))
            _check_rewards(group_id, rows)
            rollout = self._rollout(rows, token_versions=True)
            start, end = rollout.weight_version, rollout.end_version
            self._trace_routes(rollout)
            with _cleared_on_error(client, rollout.sample_ids, partition_id, aborted):
                meta = kv_first_write(
                    client,
                    rollout.columns,
                    rollout.sample_ids,
                    partition_id,
                    token_fields=PER_TOKEN_FIELDS | {TOKEN_VERSIONS},
                    tags=[{WEIGHT_VERSION: start, END_WEIGHT_VERSION: end} for _ in rows],
                )
        return GroupRollout(meta, rollout.summaries, start, end, self.exchange_stamps(stamp))

    def _trace_routes(self, rollout: Rollout) -> None:
        """Write the routes of rows that are about to be put into the trace."""
        if self._route_trace is not None:
            self._route_trace.produced(rollout.sample_ids, rollout.columns)

    def close_events(self) -> None:
        """Abort what is in flight, wait for its calls of the plane, and write the last line."""
        if self.event_writer is not None:
            self._groups.abort(None)
            self._groups.wait_for_calls(_LAST_CALLS_S)
        super().close_events()

    def abort(self, group_ids: Sequence[str] | None = None) -> None:
        """Abort groups that are in flight now, all of them if None; return at once.

        A group stops before its next token. Ids that are not in flight are ignored: calls that
        have not begun, and later calls with the same id, are not affected.
        """
        self._groups.abort(group_ids)

    def _attached(self) -> DataPlaneClient:
        if self._client is None:
            raise RuntimeError("call attach first")
        return self._client

    def _rows_of_group(
        self, loop: TurnLoop, problem: Problem, group_id: str, partial: PartialGroup | None
    ) -> list[RolloutRow]:
        """Make the rows of a new group, or a copy of those of an aborted one."""
        if partial is None:
            ids = mint_sample_ids([group_id], self._group_size("train"))
            return loop.open_rows(problem, ids)
        if partial.group_id != group_id or any(row.problem != problem for row in partial.rows):
            raise ValueError(
                f"expected a partial group of {group_id!r} and problem {problem.uid!r}; got one of "
                f"{partial.group_id!r} and {sorted({row.problem.uid for row in partial.rows})}"
            )
        return list(deepcopy(partial.rows))


def _check_rewards(group_id: str, rows: Sequence[RolloutRow]) -> None:
    """Raise ``TooFewRewards`` if the group can't be trained on for want of rewards."""
    failed = [row.outcome for row in rows if isinstance(row.outcome, FailedReward)]
    if not enough_rewards(len(rows) - len(failed), len(rows)):
        raise TooFewRewards(
            f"{len(failed)} of {len(rows)} rows of {group_id!r} have no reward; the last: "
            f"{failed[-1].error}"
        )


@contextmanager
def _cleared_on_error(
    client: DataPlaneClient,
    sample_ids: Sequence[str],
    partition_id: str,
    aborted: Future[None],
) -> Iterator[None]:
    """Clear rows if the ``with`` block raises; the error of the clearing is added as a note.

    ``PlaneUnavailable`` leaves them to the caller, unless the group was aborted meanwhile: then the
    caller may have cleared them before the plane wrote them.
    """
    with ExitStack() as on_exit:

        def clear(_: type[BaseException] | None, error: BaseException | None, *__: object) -> None:
            if error is None or (isinstance(error, PlaneUnavailable) and not aborted.done()):
                return
            try:
                client.clear_samples(sample_ids=list(sample_ids), partition_id=partition_id)
            except (DataPlaneError, OSError, RuntimeError) as second:
                error.add_note(f"clearing {list(sample_ids)} failed too: {second!r}")

        on_exit.push(clear)
        yield
