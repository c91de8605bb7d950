"""The eight methods of a data plane client.

The protocol is structural: any object with these methods and argument names is a client, whatever
it inherits from. Names and argument order are those of NeMo-RL's ``DataPlaneClient``, so an adapter
written for it runs here unchanged.

    producer ── put_samples ──▶ plane ◀── claim_meta ── consumer
                                  │  ────── meta ──────▶    │
                                  ◀─── get_data(meta) ──────┘

The *owner* opens a client with ``bootstrap=True``, which starts the plane. Every other process
opens one with ``bootstrap=False``, which attaches to the running plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:  # importing torch takes seconds, and the contract does not need it
    from tensordict import TensorDict

Tags = dict[str, Any]


@runtime_checkable
class BatchMeta(Protocol):
    """The attributes of a meta. A client may return its own class instead of ``KVBatchMeta``."""

    @property
    def partition_id(self) -> str: ...  # noqa: D102
    @property
    def task_name(self) -> str | None: ...  # noqa: D102
    @property
    def sample_ids(self) -> list[str]: ...  # noqa: D102
    @property
    def fields(self) -> list[str] | None: ...  # noqa: D102
    @property
    def sequence_lengths(self) -> list[int] | None: ...  # noqa: D102
    @property
    def extra_info(self) -> dict[str, Any]: ...  # noqa: D102
    @property
    def tags(self) -> list[Tags] | None: ...  # noqa: D102


@runtime_checkable
class DataPlaneClient(Protocol):
    """One process's handle on a data plane."""

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None:
        """Declare a partition's fields and consumer tasks. Consumers don't notice it.

        ``num_samples`` sizes the plane's tables (rows); it is an expectation, not a limit.
        """

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> BatchMeta:
        """Write columns, tags, or both for ``sample_ids``, visible as a whole once it returns.

        ``fields`` has batch size ``(len(sample_ids),)``; a leaf is a dense tensor ``(N, ...)``, a
        jagged tensor ``(N, j, ...)`` or an object column of N values. Returns a meta that names the
        ids, the partition and the fields written. A put that raises leaves nothing behind.
        """

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the named fields of the named rows, in the order asked; batch size ``(N,)``.

        Raises ``LookupError`` when any id is unknown or any field is not produced for every id.
        """

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: list[str],
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> BatchMeta:
        """Assign rows whose ``required_fields`` are produced to ``task_name``, each row once.

        Blocking: waits for ``batch_size`` rows, and raises ``TimeoutError`` after ``timeout_s``
        seconds having claimed none. Non-blocking: returns at once with 0 to ``batch_size`` rows.
        """

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read a meta's rows: ``select_fields``, else ``meta.fields``, else ``ValueError``."""

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """True when every produced row of the partition was claimed by every named task."""

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Delete rows with their tags and cursors; ``None`` deletes what this process put."""

    def close(self) -> None:
        """Detach from the plane; the owner's close stops it. Closing twice is no error."""


CLIENT_METHODS: tuple[str, ...] = (
    "register_partition",
    "put_samples",
    "get_samples",
    "claim_meta",
    "get_data",
    "check_consumption_status",
    "clear_samples",
    "close",
)


def missing_methods(candidate: object) -> Sequence[str]:
    """The client methods that ``candidate`` lacks, in the protocol's order; empty for a client."""
    return [name for name in CLIENT_METHODS if not callable(getattr(candidate, name, None))]
