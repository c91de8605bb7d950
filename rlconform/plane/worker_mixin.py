"""A policy worker's two dealings with the plane: its shard comes in, one result column goes out.

    driver    shard_meta_for_dp ── shards[dp_rank], the same one to each sibling ──▶ workers

    fetch_shard, independent             fetch_shard, leader_broadcast
      rank ── get ──▶ plane                leader ── get ──▶ plane   waits for the plane
      rank ── get ──▶ plane                  └── rows or error ──▶   siblings wait for the leader
                                           all agree                 each waits for every other

    every rank    the step's one width, the driver's plan of micro-batches
    write_back    tp = cp = pp = 0 ── put ──▶ plane; its siblings do nothing, wait for nobody

Whoever waits for siblings is unblocked by the rows, by any rank's error, by a rank's death, or by
the timeout: see ``plane.broadcast``.
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
from rlconform.plane.shard_request import Columns, ShardRequest
from rlconform.wire import Layout, is_object_column


class ShardMismatch(DataPlaneError, ValueError):
    """This rank was handed another shard, or other settings, than the leader of its group."""


@dataclass(frozen=True)
class WorkerBatch:
    """What a worker runs.

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
    """What became of a write-back.

    Attributes:
        receipt: The plane's; None where this rank wrote nothing.
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
    siblings: ReplicaGroup | None
    choice: ChosenFetchPolicy
    pad_values: dict[str, complex]


class DataPlaneWorkerMixin:
    """Gives a policy worker its shard, and takes back one result column.

    Example:
        class PolicyWorker(DataPlaneWorkerMixin):
            def start(self, client, group, tp_rank):
                self.attach_plane(
                    client,
                    ranks=ModelRanks(tp=tp_rank, cp=0, pp=0),
                    siblings=SiblingGroup(group, timeout_s=120),
                    pad_values={INPUT_IDS: self.tokenizer.pad_token_id},
                )

            def prev_logprobs(self, shard):  # the same shard on every sibling
                work = self.fetch_shard(shard, LP_SEED_FIELDS)
                logprobs = self.forward(work.batch, work.packing)  # (N, S), or wider
                return self.write_back(shard, PREV_LOGPROBS, logprobs)

            def stop(self):
                self.detach_plane()  # whoever opened the client closes it

    The fetches of a replica group are collective: every sibling makes the same ones, in the same
    order, from one thread.
    """

    _plane: _Attached | None = None

    def attach_plane(
        self,
        client: DataPlaneClient,
        *,
        ranks: ModelRanks,
        siblings: ReplicaGroup | None = None,
        policy: FetchPolicy = "auto",
        pad_values: Mapping[str, complex] | None = None,
    ) -> ChosenFetchPolicy:
        """Take what all later calls use; returns how shards will be fetched, and why.

        Args:
            client: This process's client of the plane.
            ranks: This worker's place in its replica of the model.
            siblings: The ranks that work on the same shard.
            policy: Who reads, see ``choose_policy``.
            pad_values: Pad value by column, 0 where it names none.

        Raises:
            ValueError: An unknown policy, ``leader_broadcast`` without siblings, or siblings whose
                first rank isn't the one with tp = cp = pp = 0.
        """
        choice = choose_policy(policy, siblings)
        if siblings is not None and siblings.leads != ranks.leads:
            raise ValueError(
                f"{ranks} is rank {siblings.rank} of its siblings: the first of them, and no "
                f"other, must be the one with tp = cp = pp = 0, or none or two would write"
            )
        self._plane = _Attached(client, ranks, siblings, choice, dict(pad_values or {}))
        return choice

    def detach_plane(self) -> None:
        """Let go of the client and of the siblings. Idempotent."""
        self._plane = None

    def fetch_shard(
        self,
        shard: BatchMeta,
        select_fields: Sequence[str] | None = None,
        *,
        layout: Layout = "padded",
        token_fields: Collection[str] | None = None,
    ) -> WorkerBatch:
        """This rank's rows, all of the step's width, and the driver's plan for them.

        Width and plan are those in the shard's ``extra_info``, as the driver minted them: ranks
        that each found their own would wait for each other in different collectives.

        Args:
            shard: One of ``shard_meta_for_dp``'s, with ``global_forward_pad_seqlen`` in its
                ``extra_info``; under ``leader_broadcast`` equal on all siblings.
            select_fields: Columns to read; the shard's ``fields`` by default.
            layout: ``padded`` for per-token columns (N, S, ...); ``jagged`` for (N, j, ...), which
                needs no width.
            token_fields: Names of the per-token columns, see ``wire.materialize``.

        Raises:
            RuntimeError: ``attach_plane`` was not called.
            LookupError: An unknown row, or a column not produced for every row.
            ValueError: No width, no columns, a row longer than the width.
            ShardMismatch: ``leader_broadcast``: the leader was handed something else.
            DataPlaneError: ``leader_broadcast``: as ``SiblingGroup.share`` says.
        """
        plane = self._attached()

        def wanted() -> ShardRequest:
            return ShardRequest.of(shard, select_fields, layout, plane.pad_values, token_fields)

        if plane.choice.policy == "leader_broadcast" and plane.siblings is not None:
            # A malformed shard raises in here, where the siblings hear of it.
            return plane.siblings.share(
                lambda: _read_for_all(wanted(), plane.client),
                lambda came: _worker_batch(_agreed(wanted(), came[0]), shard, came[1].batch()),
            )
        alone = wanted()
        return _worker_batch(alone, shard, alone.read(plane.client))

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
        if not plane.ranks.leads:
            return WriteBack(None, f"{plane.ranks} leaves it to its sibling with tp = cp = pp = 0")
        column = {field: _column(field, values)}
        receipt = write_columns(plane.client, meta, column, token_fields=token_fields)
        return WriteBack(receipt, f"{plane.ranks} writes for its siblings")

    def _attached(self) -> _Attached:
        if self._plane is None:
            raise RuntimeError(f"{type(self).__name__}: call attach_plane first")
        return self._plane


def _read_for_all(wanted: ShardRequest, client: DataPlaneClient) -> tuple[ShardRequest, Columns]:
    return wanted, Columns.of(wanted.read(client))


def _agreed(wanted: ShardRequest, leaders: ShardRequest) -> ShardRequest:
    """What this rank wants, if the leader wanted the very same."""
    differing = wanted.differences(leaders)
    if differing:
        raise ShardMismatch(
            f"this rank and the leader of its group differ in {', '.join(differing)}: siblings "
            f"work on one shard in one shape, or they wait for each other in the forward pass"
        )
    return wanted


def _worker_batch(wanted: ShardRequest, shard: BatchMeta, rows: TensorDict) -> WorkerBatch:
    return WorkerBatch(wanted.shape(rows), wanted.packing, shard)


def _column(name: str, values: Any) -> Any:
    """The column itself, or the one of that name in a mapping of whatever class."""
    # Object columns first: tensordict's own class for them is a mapping as well.
    if is_object_column(values) or not isinstance(values, Mapping | TensorDictBase):
        return values
    names = list(map(str, values.keys()))
    if name not in names:
        raise KeyError(f"the result has no column {name!r}, only {sorted(names)}")
    return values.get(name)
