"""Functions that a plain reproducer contains: their source is written into the script.

So they use nothing but the standard library, torch and the client, and each other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import torch


def attempt(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make a call and print its outcome; return the result, or the error that it raised."""
    print(call.__name__, end=" -> ", flush=True)  # noqa: T201
    try:
        result = call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - a plane may raise anything
        result = error
    print(repr(result), flush=True)  # noqa: T201
    return result


def end(code: int, *lines: str) -> NoReturn:
    """Print the lines, close the client and end the script, whatever threads still run."""
    print("", *lines, sep="\n", flush=True)  # noqa: T201
    with suppress(Exception):
        client.close()  # type: ignore[name-defined]  # noqa: F821 - the script's
    sys.stdout.flush()
    os._exit(code)


def violated(expected: str, got: str) -> NoReturn:
    """End the script: the defect is there."""
    end(1, f"expected {expected}", f"got {got}")


def went_as_before(
    returned: Sequence[Any], raised: Sequence[Any], claimed: Sequence[tuple[Any, list[str]]]
) -> None:
    """End the script undecided if an earlier call went otherwise than in the check."""
    errors = [isinstance(result, Exception) for result in (*returned, *raised)]
    if errors != [False] * len(returned) + [True] * len(raised):
        end(2, "expected the earlier calls to return or raise as in the check", "got another")
    for meta, ids in claimed:
        if list(meta.sample_ids) != ids:
            end(2, f"expected a claim of {ids}, as in the check", f"got {meta.sample_ids}")


def expect_returned(result: Any, expected: str) -> None:
    """Expect the call to have returned."""
    if isinstance(result, Exception):
        violated(expected, f"{type(result).__name__}: {result}")


def expect_rejection(result: Any, what: str) -> None:
    """Expect the call to have raised."""
    if not isinstance(result, Exception):
        violated(f"{what} to be rejected with an error", repr(result))


def expect_unreadable(result: Any, sample_id: str, field: str) -> None:
    """Expect the read to have raised, or to have no rows of the field."""
    if not isinstance(result, Exception) and len(result) and field in set(result.keys()):
        violated(f"{field!r} of {sample_id!r} not to be readable", f"{len(result)} rows")


def expect_equal(got: Any, expected: Any, what: str) -> None:
    """Expect equal values of one type."""
    if type(got) is not type(expected) or got != expected:
        violated(f"{what} {expected!r}", repr(got))


def expect_ids(meta: Any, ids: Sequence[str], what: str) -> None:
    """Expect the meta to name these rows, in any order."""
    expect_equal(sorted(meta.sample_ids), sorted(ids), what)


def expect_column(batch: Any, field: str, rows: Sequence[torch.Tensor]) -> None:
    """Expect the column to have these rows, bit by bit."""
    got = column_rows(batch, field)
    if len(got) != len(rows):
        violated(f"{len(rows)} rows of {field!r}", f"{len(got)} rows")
    for number, (row, want) in enumerate(zip(got, rows, strict=True)):
        if shown(row) != shown(want) or raw(row) != raw(want):
            violated(f"row {number} of {field!r} = {shown(want)}", shown(row))


def expect_rows_but_first(batch: Any, field: str, rows: Sequence[torch.Tensor]) -> None:
    """Expect all rows but the first to be as they were."""
    for row, want in list(zip(column_rows(batch, field), rows, strict=True))[1:]:
        if raw(row) != raw(want):
            violated(f"{shown(want)}, untouched by a write to row 0", shown(row))


def column_rows(batch: Any, field: str) -> list[torch.Tensor]:
    """Return the rows of a dense or jagged column."""
    if field not in set(batch.keys()):
        violated(f"field {field!r} in the result", f"fields {sorted(batch.keys())}")
    return list(batch.get(field).unbind())


def raw(row: torch.Tensor) -> bytes:
    """Return the row's bytes, of NaNs and signed zeros too."""
    plain = row.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
    flat = plain.clone(memory_format=torch.contiguous_format).view(torch.uint8)
    data: bytes = flat.numpy().tobytes()
    return data


def shown(row: torch.Tensor) -> str:
    """Return the row's label, where its bytes hold one, or its first values; and its type."""
    data = raw(row)
    label = data.decode("utf-8", "replace").rstrip("\0.") if data.startswith(b"row:") else ""
    return f"{label or row.reshape(-1)[:8].tolist()} {row.dtype} {tuple(row.shape)}"


def tags_by_id(meta: Any) -> dict[str, Mapping[str, Any]]:
    """Return a meta's tags by row."""
    if meta.tags is None or len(meta.tags) != len(meta.sample_ids):
        violated("tags on the meta, one for each id", repr(meta.tags))
    return dict(zip(meta.sample_ids, meta.tags, strict=True))


def labeled_column(
    partition_id: str, sample_ids: Sequence[str], field: str, version: int = 0, width: int = 0
) -> torch.Tensor:
    """Return rows whose bytes say where they belong."""
    texts = [f"row:{partition_id}|{one}|{field}|v{version}".ljust(width, ".") for one in sample_ids]
    rows = [torch.tensor(list(text.encode()), dtype=torch.uint8) for text in texts]
    if len({len(row) for row in rows}) == 1:
        return torch.stack(rows)
    return torch.nested.nested_tensor(rows, layout=torch.jagged)
