"""``DataPlaneWorkerMixin``: a policy worker fetches its shard and writes one result column back.

    driver    shard_meta_for_dp ── shards[dp_rank], the same one to each rank of a replica ──▶ ranks

    fetch_shard, each rank alone         fetch_shard, with a replica group
      rank ── get ──▶ plane                src rank ── get ──▶ plane   waits for the plane
      rank ── get ──▶ plane                  └── rows or error ──▶     other ranks wait for src
                                           all-reduce                  each waits for every other

    every rank    uses the step's width and the driver's plan of micro-batches
    write_back    tp = cp = pp = 0 ── put ──▶ plane; the other ranks do nothing and don't wait

A wait ends when the rows arrive, when any rank fails or dies, or at the timeout: see
``plane.group_broadcast``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tensordict import TensorDict, TensorDictBase

from rlconform.contract import BatchMeta, DataPlaneClient, DataPlaneError
from rlconform.plane.columns import write_columns
from rlconform.plane.group_broadcast import ReplicaGroup
from rlconform.plane.shard_request import ShardRequest
from rlconform.wire import is_object_column


class ShardMismatch(DataPlaneError, ValueError):
    """This rank got another shard, or other settings, than the src rank of its replica."""


@dataclass(frozen=True, kw_only=True)
class ModelRanks:
    """A worker's tensor-, context- and pipeline-parallel ranks within its replica of the model.

    No rank has a default, because a worker with a forgotten rank would write like rank 0.
    ``ValueError`` for a rank that isn't a non-negative integer.
    """

    tp: int
    cp: int
    pp: int

    def __post_init__(self) -> None:
        for name, rank in vars(self).items():
            if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
                raise ValueError(f"{name} must be a rank, an integer from 0 on, got {rank!r}")

    @property
    def is_src(self) -> bool:
        """Whether this worker writes back for its replica."""
        return self.tp == self.cp == self.pp == 0


class WorkerBatch(NamedTuple):
    """The rows that a worker fetched.

    ``batch`` has the shard's N rows; per-token columns (N, S, ...) have the step's width S.
    ``packing`` has the keys described in ``plane.sharding``; it is empty if the driver planned no
    micro-batches.
    """

    batch: TensorDict
    packing: dict[str, Any]


class _Attached(NamedTuple):
    client: DataPlaneClient
    ranks: ModelRanks
    replica: ReplicaGroup | None
    pad_values: dict[str, complex]


class DataPlaneWorkerMixin:
    """Lets a policy worker fetch its shard and write a result column.

        class PolicyWorker(DataPlaneWorkerMixin):
            def start(self, client, group, tp_rank):
                self.attach_plane(
                    client,
                    ranks=ModelRanks(tp=tp_rank, cp=0, pp=0),
                    replica=ReplicaGroup(group, timeout_s=120),
                    pad_values={INPUT_IDS: self.tokenizer.pad_token_id},
                )

            def prev_logprobs(self, shard):  # the same shard on every rank
                work = self.fetch_shard(shard, LP_SEED_FIELDS)
                logprobs = self.forward(work.batch, work.packing)  # (N, S), or wider
                return self.write_back(shard, PREV_LOGPROBS, logprobs)

    The fetches of a replica group are collective: every rank must make the same fetches in the same
    order, from one thread.
    """

    _plane: _Attached | None = None

    def attach_plane(
        self,
        client: DataPlaneClient,
        *,
        ranks: ModelRanks,
        replica: ReplicaGroup | None = None,
        pad_values: Mapping[str, complex] | None = None,
    ) -> None:
        """Set the arguments of all later calls; ``pad_values`` are by column, 0 by default.

        ``replica`` is the group of ranks that work on the same shard: its rank 0 reads for all of
        them, so that the plane sends each row only once. Without a group this rank reads for
        itself. ``ValueError`` if the group's rank 0 isn't the rank with tp = cp = pp = 0.
        """
        if replica is not None and replica.is_src != ranks.is_src:
            raise ValueError(
                f"{ranks} is rank {replica.rank} of its replica group: rank 0, and no other, must "
                f"be the one with tp = cp = pp = 0, or none or two would write"
            )
        self._plane = _Attached(client, ranks, replica, dict(pad_values or {}))

    def detach_plane(self) -> None:
        """Forget the client and the replica group, without closing them. Idempotent."""
        self._plane = None

    def fetch_shard(
        self, shard: BatchMeta, select_fields: Sequence[str] | None = None
    ) -> WorkerBatch:
        """Fetch this rank's rows, padded to the step's width, with the driver's packing plan.

        Width (``global_forward_pad_seqlen``) and plan come from the ``extra_info`` of the shard,
        which is equal on all ranks of a replica group: ranks that computed different widths or
        plans would wait for each other in different collectives.
        ``select_fields`` are the shard's ``fields`` by default.

        Raises:
            RuntimeError: ``attach_plane`` was not called.
            LookupError: An unknown row, or a column not produced for every row.
            ValueError: No width, no columns, a row longer than the width.
            ShardMismatch: The src rank of the replica group got another shard.
            DataPlaneError: Another rank failed, see ``ReplicaGroup.share``.
        """
        client, _, replica, pad_values = self._attached()

        def read() -> tuple[ShardRequest, TensorDict]:
            requested = ShardRequest.of(shard, select_fields, pad_values)
            return requested, requested.read(client)

        def use(received: tuple[ShardRequest, TensorDict]) -> WorkerBatch:
            by_src, rows = received
            requested = ShardRequest.of(shard, select_fields, pad_values)
            _check_same(requested, by_src)
            return WorkerBatch(rows, requested.packing)

        if replica is None:
            return use(read())
        # A malformed shard raises within share, so that it fails on the other ranks too.
        return replica.share(read, use)

    def write_back(self, meta: BatchMeta, field: str, values: Any) -> BatchMeta | None:
        """Write the column ``field`` of the meta's N rows; return the plane's receipt.

        Only the rank with tp = cp = pp = 0 writes; the others return None. ``values`` are a tensor
        (N, ...), an object column, or any mapping that holds ``field``. A per-token column (N, S,
        ...) needs the meta's lengths and may be wider than the longest row, for example after
        sequence parallelism: each row is cut to its own length.

        Raises:
            RuntimeError: ``attach_plane`` was not called.
            KeyError: A mapping without ``field``.
            TypeError: Neither a tensor nor an object column.
            ValueError: Another number of rows, or a per-token column that is too narrow.
        """
        plane = self._attached()
        if not plane.ranks.is_src:
            return None
        return write_columns(plane.client, meta, {field: _column(field, values)})

    def _attached(self) -> _Attached:
        if self._plane is None:
            raise RuntimeError(f"{type(self).__name__}: call attach_plane first")
        return self._plane


def _check_same(requested: ShardRequest, by_src: ShardRequest) -> None:
    """Raise ``ShardMismatch`` unless this rank and the src rank make the same request."""
    differing = requested.differences(by_src)
    if differing:
        raise ShardMismatch(
            f"this rank and rank 0 of its replica group differ in {', '.join(differing)}: all "
            f"ranks work on one shard in one shape, or they wait for each other in the forward pass"
        )


def _column(name: str, values: Any) -> Any:
    """Return the column: ``values`` itself, or the entry of that name if it is a mapping."""
    # Object columns first: tensordict's own class for them is a mapping as well.
    if is_object_column(values) or not isinstance(values, Mapping | TensorDictBase):
        return values
    names = list(map(str, values.keys()))
    if name not in names:
        raise KeyError(f"the result has no column {name!r}, only {sorted(names)}")
    return values.get(name)
