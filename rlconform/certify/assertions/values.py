"""What checks assert with. Every violation says what was expected, what came, and where from.

Rows are compared bit by bit and layout-blind: a column may come back dense or nested, but each of
its rows must have the dtype, the shape and the bytes that were put.
"""

from __future__ import annotations

import inspect
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

import torch
from tensordict import TensorDictBase

from rlconform.certify.recording.text import shorten
from rlconform.wire import object_rows, rows_of

P = ParamSpec("P")

#: Characters of what came, of a whole step's ids, say.
_LONG = 1000


@dataclass(frozen=True)
class Expectation:
    """The call of an ``expect_...`` function that raised a violation, for a script to make again.

    Attributes:
        function: Its name.
        args: What it was called with; ``LAST_CALL`` stands for a function that gave what came of
            the last client call.
    """

    function: str
    args: tuple[Any, ...]


#: See ``Expectation.args``.
LAST_CALL = object()


class ContractViolation(AssertionError):
    """The plane did not do what the contract asks.

    Attributes:
        expected, got: What the contract asks, and what the plane did instead.
        leans_on: Ids of requirements that this assertion takes for granted. Where one of them is
            broken too, the violation may follow from it; the report then says so.
        expectations: The calls of ``expect_...`` functions that led to it, the innermost first.
    """

    def __init__(self, expected: str, got: str, leans_on: Sequence[str] = ()) -> None:
        super().__init__(f"expected {expected}; got {got}")
        self.expected = expected
        self.got = got
        self.leans_on = tuple(leans_on)
        self.expectations: list[Expectation] = []


def records_expectation(function: Callable[P, None]) -> Callable[P, None]:
    """Note in a violation that this function raised it, so that a script can make the same call."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except ContractViolation as violation:
            called = signature.bind(*args, **kwargs)
            violation.expectations.append(Expectation(function.__name__, called.args))
            raise

    return checked


class ShouldViolation(UserWarning):
    """The plane did what a MUST asks, but not as a SHOULD would have it."""


def expect(condition: bool, expected: str, came: object, *, leans_on: Sequence[str] = ()) -> None:
    """Raise a violation unless ``condition`` holds."""
    if not condition:
        shown = came if isinstance(came, str) else shorten(repr(came))
        raise ContractViolation(expected, shown, leans_on)


@contextmanager
def leaning_on(*requirement_ids: str) -> Iterator[None]:
    """Mark violations of the block as ones that may follow from these requirements.

    with leaning_on("PUT-16"):
        part.expect_absent(ids)  # a refused put that stores rows breaks PUT-16 as well
    """
    try:
        yield
    except ContractViolation as violation:
        violation.leans_on = tuple(dict.fromkeys((*violation.leans_on, *requirement_ids)))
        raise


@records_expectation
def expect_equal(came: Any, expected: Any, what: str) -> None:
    """``came == expected``, of the same type; ``what`` names the thing compared."""
    same = type(came) is type(expected) and came == expected
    expect(same, f"{what} {shorten(repr(expected))}", shorten(repr(came), _LONG))


@records_expectation
def expect_column(batch: TensorDictBase, field: str, rows: Sequence[torch.Tensor]) -> None:
    """``batch[field]`` holds ``rows``, each equal in dtype, shape and bytes.

    The same rows in another order may follow from GET-01, whatever the check is about.
    """
    came = rows_in(batch, field)
    expect(len(came) == len(rows), f"{len(rows)} rows of {field!r}", f"{len(came)} rows")
    for index, (got, want) in enumerate(zip(came, rows, strict=True)):
        if difference := row_difference(got, want):
            leans_on = ("GET-01",) if _reordered(came, rows) else ()
            expected = f"row {index} of {field!r} {difference[0]}"
            raise ContractViolation(expected, difference[1], leans_on)


def _reordered(came: Sequence[torch.Tensor], rows: Sequence[torch.Tensor]) -> bool:
    """Whether both are the same rows, in any order."""

    def key(row: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
        return str(row.dtype), tuple(row.shape), as_bytes(row).numpy().tobytes()

    return Counter(map(key, came)) == Counter(map(key, rows))


@records_expectation
def expect_objects(batch: TensorDictBase, field: str, values: Sequence[Any]) -> None:
    """``batch[field]`` is an object column of ``values``, equal in value and type, at any depth."""
    leaf = leaf_of(batch, field)
    try:
        came = object_rows(leaf, len(values))
    except (TypeError, ValueError) as error:
        raise ContractViolation(
            f"{field!r} as an object column of {len(values)} values",
            f"a {type(leaf).__name__} ({error})",
        ) from error
    for index, (got, want) in enumerate(zip(came, values, strict=True)):
        expect(
            same_object(got, want), f"row {index} of {field!r} to be {want!r}", shorten(repr(got))
        )


def rows_in(batch: TensorDictBase, field: str) -> list[torch.Tensor]:
    """The rows of the tensor column ``field``, or a violation that tells what came instead."""
    leaf = leaf_of(batch, field)
    try:
        return rows_of(leaf)
    except TypeError as error:
        raise ContractViolation(
            f"{field!r} as a tensor column", f"a {type(leaf).__name__} ({error})"
        ) from error


def overwrite_first(batch: TensorDictBase, field: str) -> None:
    """Write -1 into the first row as its reader may; a result that refuses it is a violation."""
    row = rows_in(batch, field)[0]
    try:
        with torch.inference_mode(row.is_inference()), torch.no_grad():
            row.fill_(-1)
    except RuntimeError as error:
        raise ContractViolation(f"{field!r} to be the reader's own memory", str(error)) from error


@records_expectation
def expect_rows_but_first(batch: TensorDictBase, field: str, rows: Sequence[torch.Tensor]) -> None:
    """The rows after the first are still these: no two of a result share memory."""
    for index, (got, want) in enumerate(zip(rows_in(batch, field), rows, strict=True)):
        if index and (difference := row_difference(got, want)):
            raise ContractViolation(f"row {index} untouched by a write to row 0", difference[1])


def leaf_of(batch: TensorDictBase, field: str) -> Any:
    """The leaf ``field`` as stored, or a violation that tells which fields came."""
    names = list(batch.keys())
    expect(field in names, f"field {field!r} in the result", f"fields {sorted(map(str, names))}")
    return batch.get(field)


def row_difference(got: torch.Tensor, want: torch.Tensor) -> tuple[str, str] | None:
    """How two rows differ, as (expected, came); ``None`` when they are bitwise equal."""
    if got.dtype != want.dtype:
        return f"of {want.dtype}", str(got.dtype)
    if got.shape != want.shape:
        expected, came = f"of shape {tuple(want.shape)}", str(tuple(got.shape))
        whose, others = show_row(want), show_row(got)
        if whose != others and whose.startswith("row:") and others.startswith("row:"):
            return f"{expected} = {whose}", f"{came}, {others}"
        return expected, came
    if not torch.equal(as_bytes(got), as_bytes(want)):
        expected, came = show_row(want), show_row(got)
        if expected == came:  # they differ behind what is shown, or in bits that print alike
            expected, came = _first_difference(want, got)
        return f"= {expected}", came
    return None


def _first_difference(want: torch.Tensor, got: torch.Tensor) -> tuple[str, str]:
    """The first element that differs in each row, with its bytes."""
    size = want.element_size()
    rows = [as_bytes(row).reshape(-1, size) for row in (want, got)]
    at = int((rows[0] != rows[1]).any(dim=1).nonzero()[0])
    values = (row.reshape(-1)[at].item() for row in (want, got))
    shown = [
        f"{value} (bytes {bytes(row[at].tolist()).hex()}) at element {at}"
        for value, row in zip(values, rows, strict=True)
    ]
    return shown[0], shown[1]


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes, flat uint8; NaN payloads and signed zeros included."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
    # a copy first: view(uint8) needs stride 1, which contiguous() doesn't give one element
    return plain.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def show_row(row: torch.Tensor) -> str:
    """A row for people: decoded where it describes itself, else its first values."""
    if row.numel():
        text = as_bytes(row).numpy().tobytes()  # rows spell it in other dtypes too
        if text.startswith(b"row:"):
            return text.decode("utf-8", "replace").rstrip("\x00.")
    return shorten(str(row.reshape(-1)[:8].tolist()))


def same_object(got: Any, want: Any) -> bool:
    """Equality that also asks for the same types, at any depth; tensors compare bitwise."""
    if isinstance(want, torch.Tensor):
        return isinstance(got, torch.Tensor) and row_difference(got, want) is None
    if isinstance(want, dict):
        return (
            type(got) is type(want)
            and {(type(key), key) for key in got} == {(type(key), key) for key in want}
            and all(same_object(got[key], want[key]) for key in want)
        )
    if isinstance(want, list | tuple):
        return (
            type(got) is type(want)
            and len(got) == len(want)
            and all(same_object(a, b) for a, b in zip(got, want, strict=True))
        )
    if type(want) is float:
        return type(got) is float and struct.pack("<d", got) == struct.pack("<d", want)
    return type(got) is type(want) and bool(got == want)


def expect_rejection(
    call: Callable[[], object],
    what: str,
    kinds: type[BaseException] | tuple[type[BaseException], ...] = Exception,
) -> None:
    """``call`` must raise. An error outside ``kinds`` is a blemish, data is a violation."""
    try:
        came = call()
    except ContractViolation:
        raise  # it came back with an answer that is wrong, or not at all: it did not reject
    except Exception as error:  # noqa: BLE001 - a plane may raise anything; the type is judged here
        if not isinstance(error, kinds):
            names = (
                kinds.__name__
                if isinstance(kinds, type)
                else "/".join(kind.__name__ for kind in kinds)
            )
            warnings.warn(
                f"{what}: {names} is due, the plane raised {type(error).__name__}: "
                f"{shorten(str(error))}",
                ShouldViolation,
                stacklevel=2,
            )
        return
    violation = ContractViolation(f"{what} to be rejected with an error", shorten(f"{came!r}"))
    violation.expectations.append(Expectation("expect_rejection", (LAST_CALL, what)))
    raise violation


def is_rejected(call: Callable[[], object]) -> bool:
    """Whether ``call`` raises an error of the plane, of any type; a violation passes through."""
    try:
        call()
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - whether the call must be refused is for another check
        return True
    return False


def expect_lookup_error(call: Callable[[], object], what: str) -> None:
    """``call`` must raise a ``LookupError``; another error is a blemish, data is a violation."""
    expect_rejection(call, what, LookupError)
