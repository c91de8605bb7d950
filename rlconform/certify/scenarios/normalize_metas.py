"""Read metas and statuses by value: a tuple counts as a list, numpy's bool as a bool.

The contract's types are exact (``docs/adapter.md``, "Types"), and a preflight reports each wrong
type once. Checks judge only the values, so that one harmless tuple does not fail every requirement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlconform.certify.assertions.expect import ContractViolation, expect
from rlconform.certify.recording.shorten import shorten
from rlconform.contract import BatchMeta, KVBatchMeta, Tags

#: Attributes of a meta that checks read.
ATTRIBUTES = ("partition_id", "task_name", "sample_ids", "fields", "sequence_lengths", "tags")
#: Attributes that are lists, where they are not None.
LISTS = ("sample_ids", "fields", "sequence_lengths", "tags")


def meta_of(result: Any, method: str) -> BatchMeta:
    """Return a method's result as a meta whose attributes are lists, or raise a violation.

    A meta of exact types is returned unchanged, any other meta as a ``KVBatchMeta`` with the same
    values; ``get_data`` accepts both.
    """
    if missing := [name for name in ATTRIBUTES if not hasattr(result, name)]:
        found = f"{shorten(repr(result))} without {', '.join(missing)}"
        raise ContractViolation(f"{method} to return a meta", found)
    ids = result.sample_ids
    expect(
        _is_sequence(ids) and all(isinstance(i, str) for i in ids),
        f"{method} to name sample_ids as a list of strings",
        ids,
    )
    for name in ("tags", "sequence_lengths"):
        beside = getattr(result, name)
        expect(
            beside is None or (_is_sequence(beside) and len(beside) == len(ids)),
            f"{method} to give {name} as None or as a list of {len(ids)}, 1:1 with the ids",
            beside,
        )
    tags = result.tags
    expect(
        tags is None or all(isinstance(row, dict) for row in tags),
        f"{method} to give each row's tags as a dict",
        tags,
    )
    values = {name: getattr(result, name) for name in LISTS}
    if all(value is None or type(value) is list for value in values.values()):
        return result  # type: ignore[no-any-return]
    lists = {name: None if value is None else list(value) for name, value in values.items()}
    extra = getattr(result, "extra_info", None) or {}
    return KVBatchMeta(result.partition_id, result.task_name, extra_info=extra, **lists)  # type: ignore[arg-type]


def status_of(result: Any) -> bool:
    """Return the answer of ``check_consumption_status`` as a bool; numpy's bool is accepted."""
    known = isinstance(result, bool | np.bool_)
    expect(known, "check_consumption_status to be a bool", repr(result))
    return bool(result)


def tags_by_id(meta: BatchMeta) -> dict[str, Tags]:
    """Return a meta's tags by sample id; a row without tags must have an empty dict."""
    tags = meta.tags
    expect(tags is not None, "tags on the meta", "None", leans_on=("TAG-01",))
    assert tags is not None
    expect(
        len(tags) == len(meta.sample_ids),
        f"{len(meta.sample_ids)} tags, 1:1 with the ids",
        f"{len(tags)} tags",
        leans_on=("TAG-01",),
    )
    return dict(zip(meta.sample_ids, tags, strict=True))


def strange_types(method: str, result: Any) -> list[str]:
    """Describe where the types of a meta or a status differ from the contract's types."""
    if method == "check_consumption_status":
        return [] if type(result) is bool else [f"{method} returns {_name(result)}, not bool"]
    return [
        f"{method} gives {name} as {_name(value)}, not list"
        for name in LISTS
        if (value := getattr(result, name, None)) is not None and not isinstance(value, list)
    ]


def _is_sequence(value: Any) -> bool:
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return listed or (isinstance(value, np.ndarray) and value.ndim == 1)


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
