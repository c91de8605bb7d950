"""Assertions on values, columns and errors. A violation says what was expected and what it got.

Rows are compared bit by bit, whatever their layout: a plane may return a column dense or nested,
but each row must have the dtype, the shape and the bytes that were put.
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

import numpy as np
import torch
from tensordict import TensorDictBase

from rlconform.certify.assertions.raw_bytes import as_bytes, raw_bytes
from rlconform.certify.recording.shorten import error_text, shorten
from rlconform.wire import object_rows, rows_of

P = ParamSpec("P")

#: torch's own, bound before a plane is imported: one may replace ``torch.equal``.
tensors_equal = torch.equal
#: Dtypes whose equal values have equal bits.
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})

#: Most characters of a result in a violation. It holds the ids of a whole step.
_LONG = 1000


@dataclass(frozen=True)
class Expectation:
    """A call of an ``expect_...`` function that raised a violation; a reproducer repeats it."""

    function: str
    args: tuple[Any, ...]


#: In ``Expectation.args``: a function that returns the result of the last client call.
LAST_CALL = object()


class ContractViolation(AssertionError):
    """The error of an assertion: the plane broke the contract.

    Attributes:
        expected, got: What the contract requires, and what the plane did instead.
        leans_on: Ids of requirements that this assertion relies on. If the plane breaks one of
            them too, that may have caused the violation, and the report says so.
        expectations: The ``expect_...`` calls that raised the violation, innermost first.
    """

    def __init__(self, expected: str, got: str, leans_on: Sequence[str] = ()) -> None:
        super().__init__(f"expected {expected}; got {got}")
        self.expected = expected
        self.got = got
        self.leans_on = tuple(leans_on)
        self.expectations: list[Expectation] = []


def records_expectation(function: Callable[P, None]) -> Callable[P, None]:
    """Add the call of ``function`` to each violation that it raises, for the reproducer script."""
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


class FewerExamples(UserWarning):
    """A warning: the plane was too slow for all of a check's generated examples or rounds."""


class ShouldViolation(UserWarning):
    """A warning: the plane kept the MUST of a requirement, but not its SHOULD."""


def expect(condition: bool, expected: str, got: object, *, leans_on: Sequence[str] = ()) -> None:
    """Raise a violation, made of ``expected`` and ``got``, unless ``condition`` holds."""
    if not condition:
        shown = got if isinstance(got, str) else shorten(repr(got))
        raise ContractViolation(expected, shown, leans_on)


@contextmanager
def leaning_on(*requirement_ids: str) -> Iterator[None]:
    """Mark violations raised in the block as possible consequences of these broken requirements."""
    try:
        yield
    except ContractViolation as violation:
        violation.leans_on = tuple(dict.fromkeys((*violation.leans_on, *requirement_ids)))
        raise


@records_expectation
def expect_equal(got: Any, expected: Any, what: str) -> None:
    """Expect ``got`` to equal ``expected`` and have its type; ``what`` names the value."""
    same = type(got) is type(expected) and got == expected
    expect(same, f"{what} {shorten(repr(expected))}", shorten(repr(got), _LONG))


@records_expectation
def expect_column(batch: TensorDictBase, field: str, rows: Sequence[torch.Tensor]) -> None:
    """Expect ``batch[field]`` to hold ``rows`` bit by bit; a wrong order may come from GET-01."""
    column = rows_in(batch, field)
    expect(len(column) == len(rows), f"{len(rows)} rows of {field!r}", f"{len(column)} rows")
    for index, (got, want) in enumerate(zip(column, rows, strict=True)):
        if difference := row_difference(got, want):
            leans_on = ("GET-01",) if _reordered(column, rows) else ()
            expected = f"row {index} of {field!r} {difference[0]}"
            raise ContractViolation(expected, difference[1], leans_on)


def _reordered(got: Sequence[torch.Tensor], rows: Sequence[torch.Tensor]) -> bool:
    """Whether ``got`` holds the same rows as ``rows``, in any order."""

    def key(row: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
        return str(row.dtype), tuple(row.shape), raw_bytes(row)

    return Counter(map(key, got)) == Counter(map(key, rows))


@records_expectation
def expect_objects(batch: TensorDictBase, field: str, values: Sequence[Any]) -> None:
    """Expect ``batch[field]`` to be an object column of ``values``, compared by ``same_object``."""
    leaf = leaf_of(batch, field)
    try:
        column = object_rows(leaf, len(values))
    except (TypeError, ValueError) as error:
        expected = f"{field!r} as an object column of {len(values)} values"
        raise ContractViolation(expected, f"a {type(leaf).__name__} ({error})") from error
    for index, (got, want) in enumerate(zip(column, values, strict=True)):
        expected = f"row {index} of {field!r} to be {want!r}"
        expect(same_object(got, want), expected, shorten(repr(got)))


def rows_in(batch: TensorDictBase, field: str) -> list[torch.Tensor]:
    """Return the rows of the tensor column ``field``; raise a violation if it is another kind."""
    leaf = leaf_of(batch, field)
    try:
        return rows_of(leaf)
    except TypeError as error:
        got = f"a {type(leaf).__name__} ({error})"
        raise ContractViolation(f"{field!r} as a tensor column", got) from error


def overwrite_first(batch: TensorDictBase, field: str) -> None:
    """Fill the column's first row with -1."""
    overwrite(rows_in(batch, field)[0], field)


def overwrite(tensor: torch.Tensor, field: str) -> None:
    """Fill a tensor of the column with -1. A reader owns its result: a refusal is a violation."""
    try:
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            tensor.fill_(-1)
    except RuntimeError as error:
        raise ContractViolation(f"{field!r} to be the reader's own memory", str(error)) from error


@records_expectation
def expect_rows_but_first(batch: TensorDictBase, field: str, rows: Sequence[torch.Tensor]) -> None:
    """Expect all rows but the first to be unchanged, because rows of a result share no memory."""
    for index, (got, want) in enumerate(zip(rows_in(batch, field), rows, strict=True)):
        if index and (difference := row_difference(got, want)):
            raise ContractViolation(f"row {index} untouched by a write to row 0", difference[1])


def leaf_of(batch: TensorDictBase, field: str) -> Any:
    """Return the column ``field``; a violation names the fields that the batch has instead."""
    names = list(batch.keys())
    expect(field in names, f"field {field!r} in the result", f"fields {sorted(map(str, names))}")
    return batch.get(field)


def row_difference(got: torch.Tensor, want: torch.Tensor) -> tuple[str, str] | None:
    """Return (expected, got) texts of how two rows differ; ``None`` if they are bitwise equal."""
    if got.dtype != want.dtype:
        return f"of {want.dtype}", str(got.dtype)
    if got.shape != want.shape:
        expected, found = f"of shape {tuple(want.shape)}", str(tuple(got.shape))
        label, found_label = show_row(want), show_row(got)
        if label != found_label and label.startswith("row:") and found_label.startswith("row:"):
            return f"{expected} = {label}", f"{found}, {found_label}"
        return expected, found
    if not _same_bits(got, want):
        expected, found = show_row(want), show_row(got)
        if expected == found:  # they differ beyond what is shown, or in bits that print the same
            expected, found = _first_difference(want, got)
        return f"= {expected}", found
    return None


def _same_bits(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether two rows of one dtype and shape are bitwise equal."""
    if want.dtype in INTEGERS and got.device == want.device:  # without copies
        return tensors_equal(got, want)
    return raw_bytes(got) == raw_bytes(want)


def _first_difference(want: torch.Tensor, got: torch.Tensor) -> tuple[str, str]:
    """Return each row's first element that differs between the rows, with its bytes, as text."""
    size = want.element_size()
    rows = [as_bytes(row).reshape(-1, size) for row in (want, got)]
    at = int((rows[0] != rows[1]).any(dim=1).nonzero()[0])
    values = (row.reshape(-1)[at].item() for row in (want, got))
    shown = [
        f"{value} (bytes {bytes(row[at].tolist()).hex()}) at element {at}"
        for value, row in zip(values, rows, strict=True)
    ]
    return shown[0], shown[1]


def show_row(row: torch.Tensor) -> str:
    """Return a row as readable text: its label if the test data has one, else its first values."""
    if row.numel():
        text = raw_bytes(row)  # a row of any dtype may hold a label
        if text.startswith(b"row:"):
            return text.decode("utf-8", "replace").rstrip("\x00.")
    return shorten(str(row.reshape(-1)[:8].tolist()))


def same_object(got: Any, want: Any) -> bool:
    """Whether ``got`` equals ``want`` in value and type, at any depth.

    Tensors, arrays and floats are compared bitwise, whatever their layout in memory.
    """
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
    if isinstance(want, np.ndarray):
        if type(got) is not type(want) or (got.dtype, got.shape) != (want.dtype, want.shape):
            return False
        if want.dtype.hasobject:
            return same_object(got.tolist(), want.tolist())
        return bool(got.tobytes() == want.tobytes())
    if type(want) is float:
        return type(got) is float and struct.pack("<d", got) == struct.pack("<d", want)
    return type(got) is type(want) and bool(got == want)


def expect_rejection(
    call: Callable[[], object],
    what: str,
    kind: type[Exception] = Exception,
) -> None:
    """Expect ``call`` to raise an error; warn if the error is not of type ``kind``."""
    try:
        result = call()
    except ContractViolation:
        raise  # the call returned a wrong result, or hung: it rejected nothing
    except Exception as error:  # noqa: BLE001 - a plane may raise anything; its type is checked here
        if not isinstance(error, kind):
            text = f"{what}: expected {kind.__name__}; got {error_text(error)}"
            warnings.warn(text, ShouldViolation, stacklevel=2)
        return
    violation = ContractViolation(f"{what} to be rejected with an error", shorten(f"{result!r}"))
    violation.expectations.append(Expectation("expect_rejection", (LAST_CALL, what)))
    raise violation


def is_rejected(call: Callable[[], object]) -> bool:
    """Whether ``call`` raises an error of any type. A ``ContractViolation`` is raised on."""
    try:
        call()
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - another check says whether the call must be refused
        return True
    return False


def expect_lookup_error(call: Callable[[], object], what: str) -> None:
    """Expect ``call`` to raise a ``LookupError``, see ``expect_rejection``."""
    expect_rejection(call, what, LookupError)
