"""``DataPlaneWorkerMixin``: a policy worker fetches its shard and writes one result column back.

    driver    shard_meta_for_dp ── shards[dp_rank], the same one to each rank of a replica ──▶ ranks

    fetch_shard, independent             fetch_shard, leader_broadcast
      rank ── get ──▶ plane                src rank ── get ──▶ plane   waits for the plane
      rank ── get ──▶ plane                  └── rows or error ──▶     other ranks wait for src
                                           all-reduce                  each waits for every other

    every rank    uses the step's one width and the driver's plan of micro-batches
    write_back    tp = cp = pp = 0 ── put ──▶ plane; the other ranks do nothing and don't wait

A wait ends with the rows, with any rank's error, with a rank's death, or with the timeout: see
``plane.group_broadcast``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensordict import TensorDict, TensorDictBase

from rlconform.contract import BatchMeta, DataPlaneClient, DataPlaneError
from rlconform.contract.fields import PER_TOKEN_FIELDS
from rlconform.plane.columns import write_columns
from rlconform.plane.fetch_policy import ChosenFetchPolicy, FetchPolicy, ModelRanks, choose_policy
from rlconform.plane.group_broadcast import ReplicaGroup
from rlconform.plane.shard_request import PlainBatch, ShardRequest
from rlconform.wire import Layout, is_object_column


class ShardMismatch(DataPlaneError, ValueError):
    """This rank got another shard, or other settings, than the src rank of its replica."""


@dataclass(frozen=True)
class WorkerBatch:
    """A worker's input.

    Attributes:
        batch: The shard's N rows; per-token columns (N, S, ...) of the step's one width S.
        packing: The driver's ``micro_batch_indices``, ``micro_batch_lengths`` and
            ``elem_counts_per_gb``; empty where it planned no micro-batches.
        meta: The shard.
    """

    batch: TensorDict
    packing: dict[str, Any]
    meta: BatchMeta


@dataclass(frozen=True)
class WriteBack:
    """The result of ``write_back``.

    Attributes:
        receipt: The plane's receipt; None if this rank wrote nothing.
        reason: Why this rank wrote, or didn't.
    """

    receipt: BatchMeta | None
    reason: str

    @property
    def written(self) -> bool:
        """Whether this rank wrote."""
        return self.receipt is not None


@dataclass(frozen=True)
class _Attached:
    client: DataPlaneClient
    ranks: ModelRanks
    replica: ReplicaGroup | None
    choice: ChosenFetchPolicy
    pad_values: dict[str, complex]


class DataPlaneWorkerMixin:
    """Adds fetching a shard and writing a result column to a policy worker.

    Example:
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

            def stop(self):
                self.detach_plane()  # the client stays open

    The fetches of a replica group are collective: every rank makes the same ones, in the same
    order, from one thread.
    """

    _plane: _Attached | None = None

    def attach_plane(
        self,
        client: DataPlaneClient,
        *,
        ranks: ModelRanks,
        replica: ReplicaGroup | None = None,
        policy: FetchPolicy = "auto",
        pad_values: Mapping[str, complex] | None = None,
    ) -> ChosenFetchPolicy:
        """Set what all later calls use; returns how shards will be fetched, and why.

        Args:
            client: This process's client of the plane.
            ranks: This worker's ranks within its replica of the model.
            replica: The ranks that work on the same shard.
            policy: Who reads, see ``choose_policy``.
            pad_values: Pad value by column, 0 where it names none.

        Raises:
            ValueError: An unknown policy, ``leader_broadcast`` without a replica group, or a group
                whose rank 0 isn't the one with tp = cp = pp = 0.
        """
        choice = choose_policy(policy, replica)
        if replica is not None and replica.is_src != ranks.is_src:
            raise ValueError(
                f"{ranks} is rank {replica.rank} of its replica group: rank 0, and no other, must "
                f"be the one with tp = cp = pp = 0, or none or two would write"
            )
        self._plane = _Attached(client, ranks, replica, choice, dict(pad_values or {}))
        return choice

    def detach_plane(self) -> None:
        """Forget the client and the replica group, without closing them. Idempotent."""
        self._plane = None

    def fetch_shard(
        self,
        shard: BatchMeta,
        select_fields: Sequence[str] | None = None,
        *,
        layout: Layout = "padded",
        token_fields: Collection[str] | None = None,
    ) -> WorkerBatch:
        """Fetch this rank's rows, padded to the step's width, with the driver's packing plan.

        Width and plan come from the shard's ``extra_info``, where the driver put them: ranks that
        each computed their own would wait for each other in different collectives.

        Args:
            shard: One of ``shard_meta_for_dp``'s, with ``global_forward_pad_seqlen`` in its
                ``extra_info``; under ``leader_broadcast`` equal on all ranks of the replica.
            select_fields: Columns to read; the shard's ``fields`` by default.
            layout: ``padded`` for per-token columns (N, S, ...); ``jagged`` for (N, j, ...), which
                needs no width.
            token_fields: Names of the per-token columns, see ``wire.materialize``.

        Raises:
            RuntimeError: ``attach_plane`` was not called.
            LookupError: An unknown row, or a column not produced for every row.
            ValueError: No width, no columns, a row longer than the width.
            ShardMismatch: ``leader_broadcast``: the src rank got another shard.
            DataPlaneError: ``leader_broadcast``: see ``ReplicaGroup.share``.
        """
        plane = self._attached()

        def request() -> ShardRequest:
            return ShardRequest.of(shard, select_fields, layout, plane.pad_values, token_fields)

        def read() -> tuple[ShardRequest, PlainBatch]:
            requested = request()
            return requested, PlainBatch.of(requested.read(plane.client))

        def use(received: tuple[ShardRequest, PlainBatch]) -> WorkerBatch:
            requested = request()
            _check_same(requested, received[0])
            return WorkerBatch(requested.shape(received[1].batch()), requested.packing, shard)

        if plane.choice.policy == "leader_broadcast" and plane.replica is not None:
            # A malformed shard raises within share, so that it fails on the other ranks too.
            return plane.replica.share(read, use)
        requested = request()
        return WorkerBatch(requested.shape(requested.read(plane.client)), requested.packing, shard)

    def write_back(
        self,
        meta: BatchMeta,
        field: str,
        values: Any,
        *,
        token_fields: Collection[str] = PER_TOKEN_FIELDS,
    ) -> WriteBack:
        """Write one result column of the meta's rows, once per replica.

        Args:
            meta: The shard's N rows, with their lengths where the column is per token.
            field: Name of the column.
            values: A tensor (N, ...), an object column, or any mapping that holds ``field``. A
                per-token column (N, S, ...) may be wider than the longest row, as sequence
                parallelism leaves it: each row is cut to its own length.
            token_fields: Names of the per-token columns.

        Returns:
            The plane's receipt on the rank with tp = cp = pp = 0; none, and why, on the others.

        Raises:
            RuntimeError: ``attach_plane`` was not called.
            KeyError: A mapping without ``field``.
            TypeError: Neither a tensor nor an object column.
            ValueError: Another number of rows, or a per-token column that is too narrow.
        """
        plane = self._attached()
        if not plane.ranks.is_src:
            return WriteBack(None, f"{plane.ranks} leaves it to the rank with tp = cp = pp = 0")
        column = {field: _column(field, values)}
        receipt = write_columns(plane.client, meta, column, token_fields=token_fields)
        return WriteBack(receipt, f"{plane.ranks} writes for its replica")

    def _attached(self) -> _Attached:
        if self._plane is None:
            raise RuntimeError(f"{type(self).__name__}: call attach_plane first")
        return self._plane


def _check_same(requested: ShardRequest, by_src: ShardRequest) -> None:
    """``ShardMismatch`` unless this rank and the src rank request the same."""
    differing = requested.differences(by_src)
    if differing:
        raise ShardMismatch(
            f"this rank and rank 0 of its replica group differ in {', '.join(differing)}: all "
            f"ranks work on one shard in one shape, or they wait for each other in the forward pass"
        )


def _column(name: str, values: Any) -> Any:
    """The column: ``values`` itself, or the entry of that name in a mapping of any class."""
    # Object columns first: tensordict's own class for them is a mapping as well.
    if is_object_column(values) or not isinstance(values, Mapping | TensorDictBase):
        return values
    names = list(map(str, values.keys()))
    if name not in names:
        raise KeyError(f"the result has no column {name!r}, only {sorted(names)}")
    return values.get(name)
