"""``BaseClient``: the client methods of the built-in planes, on top of a ``PlaneEngine``.

    caller ──▶ BaseClient (checks arguments, builds metas) ──▶ PlaneEngine (rows, tags, cursors)

Arguments are checked here for all built-in planes before the engine is called, so a malformed call
changes nothing. A cursor is a task's record of the rows that it has claimed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from tensordict import TensorDict

from rlconform.backends import checkpoint, validation
from rlconform.backends.plane_engine import PlaneEngine
from rlconform.contract import BatchMeta, ConfigError, KVBatchMeta, PlaneControl, Tags
from rlconform.contract.fields import INPUT_LENGTHS


class BaseClient:
    """A client of a built-in plane; its methods may be called from any thread.

    In a partition with ``grpo_group_size=G`` a claim returns whole groups. A group is G rows
    ``<uid>_g<i>`` with the same uid and the same ``i // G``; rows whose ids don't end in ``_g<i>``
    form groups of G in the order of their puts.

    Every method raises ``ClientClosed`` after this client's close, and ``PlaneUnavailable`` if the
    plane is dead or doesn't answer, or its owner has closed it.
    """

    _engine: PlaneEngine

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None:
        """Declare a partition's consumer tasks and group size; puts may add undeclared fields.

        Registering an empty partition resets it. Registering a partition with rows adds the tasks
        and keeps rows and cursors. ``ValueError`` for a malformed argument, or another group size
        while there are rows.
        """
        validation.text("partition_id", partition_id)
        validation.texts("fields", fields, unique=True)
        validation.whole("num_samples", num_samples, least=0)
        tasks = validation.texts("consumer_tasks", consumer_tasks, unique=True)
        group_size = 1
        if grpo_group_size is not None:
            group_size = validation.whole("grpo_group_size", grpo_group_size, least=1)
        validation.enumerations(enums)
        self._engine.check_open()
        self._engine.register(partition_id, tasks, group_size)

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Write columns, tags, or both; the plane keeps copies, on the CPU and without grad.

        All rows of a field have one dtype; only a put that replaces all of them may change it.

        Raises:
            ValueError: A malformed argument, a batch size or a number of tags other than N, or a
                dtype that differs from that of rows which the put does not replace.
            TypeError: A leaf that is no dense tensor, jagged tensor or object column.
            CapacityExceeded: The plane is full.
        """
        sample_ids = validation.texts("sample_ids", sample_ids, unique=True)
        validation.text("partition_id", partition_id)
        validation.batch(fields, len(sample_ids))
        tag_rows = validation.tag_rows(tags, len(sample_ids))
        if fields is None and tags is None:
            raise ValueError("put_samples needs fields or tags")
        self._engine.check_open()
        if sample_ids:
            self._engine.put(partition_id, sample_ids, fields, tag_rows)
        names = [] if fields is None else list(map(str, fields.keys()))
        # the plane keeps its own list of ids, which a change to the receipt must not reach
        return KVBatchMeta(partition_id, None, list(sample_ids), fields=names)

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read fields of rows, in the order of ``sample_ids``, which may repeat.

        A field is dense if all its rows have one shape, however they were put, else jagged.
        An empty list of ids gives an empty batch without columns.

        Raises:
            KeyError: An unknown partition or id, or a field not produced for every id.
            ValueError: A malformed argument, or rows whose shapes don't fit in one tensor.
        """
        sample_ids = validation.texts("sample_ids", sample_ids)
        validation.text("partition_id", partition_id)
        names = validation.texts("select_fields", select_fields, least=1)
        self._engine.check_open()
        if not sample_ids:
            return TensorDict({}, batch_size=[0])
        return self._engine.get(partition_id, sample_ids, list(dict.fromkeys(names)))

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: list[str],
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta:
        """Claim ready rows for a task, oldest first, each row once; all ranks share one cursor.

        A blocking claim returns exactly ``batch_size`` rows, a non-blocking one 0 to that many.

        Raises:
            TimeoutError: ``timeout_s`` seconds passed; nothing is claimed.
            KeyError: An unknown partition or task.
            ValueError: A malformed argument, or a blocking claim of incomplete groups.
        """
        validation.text("partition_id", partition_id)
        validation.text("task_name", task_name)
        names = validation.texts("required_fields", required_fields, least=1)
        rows = validation.whole("batch_size", batch_size, least=1)
        if dp_rank is not None:
            validation.whole("dp_rank", dp_rank, least=0)
        validation.flag("blocking", blocking)
        wait_s = validation.seconds("timeout_s", timeout_s)
        self._engine.check_open()
        sample_ids, tags = self._engine.claim(
            partition_id, task_name, names, rows, wait_s if blocking else None
        )
        return KVBatchMeta(
            partition_id,
            task_name,
            sample_ids,
            fields=names,
            sequence_lengths=_lengths(tags),
            tags=tags,
        )

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read a meta's rows; ``ValueError`` if ``select_fields`` and ``meta.fields`` are None."""
        if not isinstance(meta, BatchMeta):
            raise TypeError(f"meta must name rows of a partition, got {type(meta).__name__}")
        names = meta.fields if select_fields is None else select_fields
        if not names:
            raise ValueError("get_data: neither select_fields nor meta.fields names a field")
        return self.get_samples(meta.sample_ids, meta.partition_id, names)

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """Return whether every named task has claimed every produced row.

        False while nothing was produced since the partition was registered, and for an unknown
        partition or task. Rows that were cleared, and rows with tags only, don't count.
        """
        validation.text("partition_id", partition_id)
        names = validation.texts("task_names", task_names, least=1)
        self._engine.check_open()
        return self._engine.all_claimed(partition_id, names)

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Delete rows with tags and cursors; None deletes all rows that this process put."""
        if sample_ids is not None:
            sample_ids = validation.texts("sample_ids", sample_ids)
        validation.text("partition_id", partition_id)
        self._engine.check_open()
        if sample_ids != []:
            self._engine.clear(partition_id, sample_ids)

    def list_sample_ids(self, partition_id: str) -> list[str]:
        """Return the sorted ids of all rows of a partition, an empty list for an unknown partition.

        The call claims nothing and reads no values. Rows with tags only are included. This method
        and the two checkpoint methods are not part of the contract.
        """
        validation.text("partition_id", partition_id)
        self._engine.check_open()
        return sorted(self._engine.sample_ids(partition_id))

    def save_checkpoint(
        self, checkpoint_dir: str | PathLike[str], *, metadata: dict[str, Any] | None = None
    ) -> None:
        """Write the whole plane to a folder: registrations, rows with fields and tags, cursors.

        The folder appears once it is complete; an earlier checkpoint there is replaced. No process
        may put or clear during the call.

        Raises:
            TypeError, ValueError: ``metadata`` is not a dict that JSON can encode, or an object
                column has values other than plain data.
            FileExistsError: The folder exists and is no checkpoint.
        """
        self._engine.check_open()
        checkpoint.save(self._engine, Path(checkpoint_dir), metadata)

    def load_checkpoint(self, checkpoint_dir: str | PathLike[str]) -> dict[str, Any]:
        """Load a checkpoint into an empty plane; return the ``metadata`` that it was saved with.

        The rows count as put by this process. Nothing is unpickled.

        Raises:
            RuntimeError: The plane has partitions already.
            FileNotFoundError: There is no checkpoint.
            ValueError: The checkpoint has another format, or holds pickles.
            CapacityExceeded: The plane is full.
        """
        self._engine.check_open()
        return checkpoint.load(self._engine, Path(checkpoint_dir))

    def close(self) -> None:
        """Detach from the plane; in the owner, end the plane and all that it started."""
        self._engine.close()


class SharedClient(BaseClient):
    """A client of a plane with several processes, which the owner's client can name."""

    _owner: bool
    _connection: Any  # of a type that this process may have no package for

    def control(self) -> PlaneControl:
        """Return what names the plane's processes; ``ValueError`` unless this is the owner."""
        if not self._owner:
            raise ValueError("only the owner's client can name the plane's processes")
        control: PlaneControl = self._connection
        return control


def load_module(name: str, extra: str) -> Any:
    """Import a backend's module; ``ConfigError`` if it needs a package that isn't installed."""
    try:
        return importlib.import_module(f"rlconform.backends.{name}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'the Python package {error.name} is not installed: pip install "rlconform[{extra}]"'
        ) from error


def _lengths(tags: Sequence[Tags]) -> list[int] | None:
    """Return the rows' ``input_lengths`` tags; None unless every row has an integer."""
    lengths = [row.get(INPUT_LENGTHS) for row in tags]
    integers = [
        int(n) for n in lengths if isinstance(n, int | np.integer) and not isinstance(n, bool)
    ]
    return integers if len(integers) == len(lengths) else None
