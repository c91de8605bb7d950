"""The eight methods of a data plane client.

The protocol is structural: any object with these methods and argument names is a client, whatever
its class. Names and argument order are those of NeMo-RL's ``DataPlaneClient``, so its adapters run
here unchanged. A meta names the rows of a batch without their values.

    producer ── put_samples ──▶ plane ◀── claim_meta ── consumer
                                  │  ────── meta ──────▶    │
                                  ◀─── get_data(meta) ──────┘

The *owner* opens a client with ``bootstrap=True``, which starts the plane. Every other process
opens a client with ``bootstrap=False``, which attaches to the running plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:  # importing torch takes seconds, and the contract does not need it
    from tensordict import TensorDict

Tags = dict[str, Any]


@runtime_checkable
class BatchMeta(Protocol):
    """A meta: the names of a batch's rows. A client may return any class with these attributes."""

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
    """The connection of one process to a data plane."""

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None:
        """Declare a partition's fields and consumer tasks, once for all processes.

        ``num_samples`` sizes the plane's tables (rows); it is an expectation, not a limit.
        """

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> BatchMeta:
        """Write columns, tags, or both for ``sample_ids``; all are visible together on return.

        ``fields`` has batch size ``(len(sample_ids),)``; a leaf is a dense tensor ``(N, ...)``, a
        jagged tensor ``(N, j, ...)`` or an object column of N Python values. Returns a meta with
        the ids, the partition and the fields written. A put that raises leaves nothing behind.
        """

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the named fields of the named rows into a batch of size ``(N,)``, in the ids' order.

        Raises ``LookupError`` if an id is unknown, or if a field is not produced for every id.
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
        """Claim rows that have all ``required_fields`` for ``task_name``, which gets each row once.

        A blocking call waits for ``batch_size`` rows; after ``timeout_s`` seconds it claims none
        and raises ``TimeoutError``. A non-blocking call returns 0 to ``batch_size`` rows at once.
        """

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read a meta's rows; ``ValueError`` if ``select_fields`` and ``meta.fields`` are None."""

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """Return whether every named task has claimed every produced row of the partition."""

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Delete rows, their tags and claims; ``None`` deletes all rows that this process put."""

    def close(self) -> None:
        """Detach from the plane; in the owner, stop the plane. Closing twice is no error."""


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
    """Return the client methods that ``candidate`` lacks, in the protocol's order."""
    return [name for name in CLIENT_METHODS if not callable(getattr(candidate, name, None))]
