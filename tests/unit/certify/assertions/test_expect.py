"""The assertions of checks find every difference in a bit, a type or a shape."""

from __future__ import annotations

import struct
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.certify.assertions.expect import (
    ContractViolation,
    ShouldViolation,
    expect,
    expect_column,
    expect_equal,
    expect_lookup_error,
    expect_objects,
    expect_rejection,
    leaf_of,
    row_difference,
    same_object,
    show_row,
)
from rlconform.certify.assertions.raw_bytes import as_bytes
from rlconform.certify.scenarios.labeled_rows import labeled_row, labeled_rows
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import UnknownSample


def floats(*bits: int) -> torch.Tensor:
    """A float32 row of these bit patterns."""
    return torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)


NAN, NAN_WITH_PAYLOAD, MINUS_ZERO = 0x7FC00000, 0x7FC00001, 0x80000000


# -- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        floats(NAN, MINUS_ZERO, 0),
        torch.tensor(1.5),
        torch.tensor([True, False]),
        torch.zeros(0, 3, dtype=torch.bfloat16),
        torch.tensor([1.5, -0.0]).to(torch.float8_e4m3fn),
        torch.tensor([1 + 2j]),
        torch.tensor([2**63], dtype=torch.uint64),
    ],
    ids=lambda row: str(row.dtype),
)
def test_a_row_equals_its_copy(row: torch.Tensor) -> None:
    assert row_difference(row.clone(), row) is None


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (torch.arange(12).reshape(3, 4).t(), torch.arange(12).reshape(3, 4).t().contiguous()),
        (torch.arange(8)[::2], torch.tensor([0, 2, 4, 6])),
        (torch.tensor(7).expand(3), torch.tensor([7, 7, 7])),
        (torch.arange(3.0).reshape(1, 3).t()[1], torch.tensor([1.0])),
        (torch.ones(2, requires_grad=True), torch.ones(2)),
        (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])),
        (torch.tensor([1 + 2j]).conj().imag, torch.tensor([-2.0])),
    ],
    ids=[
        "transposed",
        "strided",
        "expanded",
        "one of a stride",
        "with grad",
        "conjugated",
        "negated",
    ],
)
def test_rows_compare_by_value_not_by_memory(got: torch.Tensor, want: torch.Tensor) -> None:
    assert row_difference(got, want) is None


@pytest.mark.parametrize(
    ("got", "want", "named"),
    [
        (floats(NAN), floats(NAN_WITH_PAYLOAD), "= "),
        (floats(0), floats(MINUS_ZERO), "= "),
        (torch.tensor([1.0]), torch.tensor([1]), "int64"),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), "float64"),
        (torch.zeros(1), torch.tensor(0.0), "()"),
        (torch.zeros(2, 3), torch.zeros(3, 2), "(3, 2)"),
        (torch.zeros(0, 3), torch.zeros(0), "(0,)"),
        (torch.tensor([1, 2]), torch.tensor([2, 1]), "[2, 1]"),
    ],
)
def test_rows_that_differ_are_told_apart(got: torch.Tensor, want: torch.Tensor, named: str) -> None:
    for here, there in ((got, want), (want, got)):
        assert row_difference(here, there) is not None
    expected, _ = row_difference(got, want) or ("", "")
    assert named in expected


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (floats(0), floats(MINUS_ZERO)),
        (floats(NAN), floats(NAN_WITH_PAYLOAD)),
        (torch.arange(100), torch.arange(100).index_fill(0, torch.tensor(90), -1)),
    ],
    ids=["sign of zero", "payload of nan", "far behind"],
)
def test_a_reader_sees_where_rows_differ(got: torch.Tensor, want: torch.Tensor) -> None:
    expected, found = row_difference(got, want) or ("", "")
    assert expected.removeprefix("= ") != found


def test_bytes_are_those_in_memory() -> None:
    assert as_bytes(floats(NAN_WITH_PAYLOAD)).tolist() == [1, 0, 0xC0, 0x7F]
    assert as_bytes(torch.tensor([258, -1], dtype=torch.int16)).tolist() == [2, 1, 255, 255]


def test_a_row_that_describes_itself_is_shown_in_words() -> None:
    row = labeled_row("train", "u0_g0", "x", version=2, width=64)
    assert show_row(row) == "row:train|u0_g0|x|v2"
    assert show_row(torch.tensor([1, 2], dtype=torch.uint8)) == "[1, 2]"
    assert len(show_row(torch.arange(10**6))) < 100


# -- columns -------------------------------------------------------------------------------------

ROWS = [torch.tensor([1, 2]), torch.tensor([3, 4]), torch.tensor([5, 6])]


def jagged(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nested.nested_tensor(list(rows), layout=torch.jagged)


def batch(**leaves: Any) -> TensorDict:
    return TensorDict(leaves, batch_size=[3])


def violation(call: Callable[[], object]) -> ContractViolation:
    """The violation that ``call`` raises."""
    with pytest.raises(ContractViolation) as raised:
        call()
    return raised.value


def test_a_column_may_come_back_in_any_layout() -> None:
    expect_column(batch(x=torch.stack(ROWS)), "x", ROWS)
    expect_column(batch(x=jagged(ROWS)), "x", ROWS)
    expect_column(batch(x=jagged([ROWS[0], ROWS[0][:0], ROWS[1]])), "x", [
        ROWS[0], ROWS[0][:0], ROWS[1]
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ROWS[:2], "3 rows"),
        ([*ROWS, ROWS[0]], "3 rows"),
        ([ROWS[0], ROWS[2], ROWS[1]], "row 1 of 'x' = [5, 6]; got [3, 4]"),
        ([row.reshape(2, 1) for row in ROWS], "row 0 of 'x' of shape (2, 1); got (2,)"),
        ([row.int() for row in ROWS], "row 0 of 'x' of torch.int32; got torch.int64"),
    ],
)
@pytest.mark.parametrize("layout", [torch.stack, jagged])
def test_a_column_of_other_rows_is_a_violation(
    rows: list[torch.Tensor], said: str, layout: Callable[[list[torch.Tensor]], torch.Tensor]
) -> None:
    assert said in str(violation(lambda: expect_column(batch(x=layout(ROWS)), "x", rows)))


def test_a_row_that_says_whose_it_is_does_so_whatever_its_width() -> None:
    rows = labeled_rows("p", ["r9", "r10", "r11"], "x")
    swapped = jagged([rows[1], rows[0], rows[2]])
    said = str(violation(lambda: expect_column(batch(x=swapped), "x", rows)))
    assert "of shape (13,) = row:p|r9|x|v0; got (14,), row:p|r10|x|v0" in said


def test_scalars_are_not_rows_of_one() -> None:
    flat, column = torch.arange(3), torch.arange(3).reshape(3, 1)
    expect_column(batch(x=flat), "x", list(flat))
    assert "(1,)" in str(violation(lambda: expect_column(batch(x=flat), "x", list(column))))
    assert "()" in str(violation(lambda: expect_column(batch(x=column), "x", list(flat))))


def test_a_missing_field_is_a_violation_that_names_the_fields_it_got() -> None:
    found = violation(lambda: leaf_of(batch(y=torch.zeros(3), z=torch.zeros(3)), "x"))
    assert (found.expected, found.got) == ("field 'x' in the result", "fields ['y', 'z']")


@pytest.mark.parametrize(
    ("order", "leans_on"), [([2, 1, 0], ("GET-01",)), ([1, 1, 2], ()), ([2, 0, 3], ())]
)
def test_rows_in_another_order_may_follow_from_the_order_of_reads(
    order: list[int], leans_on: tuple[str, ...]
) -> None:
    rows = [torch.full((2,), float(value)) for value in range(4)]
    batch = TensorDict({"x": torch.stack([rows[at] for at in order])}, [3])
    with pytest.raises(ContractViolation) as raised:
        expect_column(batch, "x", rows[:3])
    assert raised.value.leans_on == leans_on


@pytest.mark.parametrize(
    "leaf",
    [
        NonTensorStack(*[NonTensorData("a") for _ in range(3)]),
        TensorDict({}, batch_size=[3]),
        TensorDict({"deep": torch.zeros(3)}, batch_size=[3]),
    ],
    ids=["objects", "empty leaf", "nested"],
)
def test_what_is_no_tensor_column_is_a_violation(leaf: Any) -> None:
    assert "as a tensor column" in str(violation(lambda: expect_column(batch(x=leaf), "x", ROWS)))


# -- objects -------------------------------------------------------------------------------------


def array(values: list[Any]) -> np.ndarray[Any, Any]:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def stack(values: list[Any]) -> NonTensorStack:
    return NonTensorStack(*[NonTensorData(value) for value in values])


VALUES = ["", None, {"turns": [{"role": "user"}, None]}]


@pytest.mark.parametrize("carrier", [array, stack])
def test_objects_may_come_in_any_carrier(carrier: Callable[[list[Any]], Any]) -> None:
    expect_objects(batch(m=carrier(VALUES)), "m", VALUES)


@pytest.mark.parametrize(
    "found",
    [
        [None, None, VALUES[2]],
        ["", "", VALUES[2]],
        ["", None, {}],
        ["", None, {"turns": [{"role": "user"}, ""]}],
        [VALUES[1], VALUES[0], VALUES[2]],
    ],
)
@pytest.mark.parametrize("carrier", [array, stack])
def test_other_objects_are_a_violation(
    found: list[Any], carrier: Callable[[list[Any]], Any]
) -> None:
    said = str(violation(lambda: expect_objects(batch(m=carrier(found)), "m", VALUES)))
    assert "row " in said


@pytest.mark.parametrize(
    "leaf",
    [torch.zeros(3), TensorDict({}, batch_size=[3]), TensorDict({"a": torch.zeros(3)}, [3])],
    ids=["tensor", "empty leaf", "nested"],
)
def test_what_is_no_object_column_is_a_violation(leaf: Any) -> None:
    found = violation(lambda: expect_objects(batch(m=leaf), "m", VALUES))
    assert found.expected == "'m' as an object column of 3 values"


@pytest.mark.parametrize(
    "value",
    ["", 0, True, None, 0.5, b"x", [], {}, (1, "a"), {"k": [1, (2.0, None)]}, torch.ones(2)],
    ids=repr,
)
def test_an_object_is_the_same_as_its_copy(value: Any) -> None:
    assert same_object(value, value.clone() if isinstance(value, torch.Tensor) else value)
    assert same_object({"at": [value]}, {"at": [value]})


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (1, True),
        (1, 1.0),
        (0, None),
        ("", None),
        ("1", 1),
        (b"a", "a"),
        ([1], (1,)),
        ([], {}),
        ([1, 2], [1]),
        ({"a": 1}, {"a": 1, "b": None}),
        ({"a": None}, {"b": None}),
        ({1: "a"}, {"1": "a"}),
        ({1: "a"}, {True: "a"}),
        (OrderedDict(a=1), {"a": 1}),
        (torch.ones(1), torch.ones(1, dtype=torch.float64)),
        (1.0, torch.tensor(1.0)),
        (np.float64(0.5), 0.5),
    ],
    ids=repr,
)
@pytest.mark.parametrize("depth", [0, 2])
def test_objects_that_differ_in_value_or_type_are_told_apart(
    got: Any, want: Any, depth: int
) -> None:
    for _ in range(depth):
        got, want = {"at": [got]}, {"at": [want]}
    assert not same_object(got, want)
    assert not same_object(want, got)


def float64(bits: int) -> float:
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    return float(value)


@pytest.mark.parametrize("depth", [0, 1])
def test_floats_in_objects_compare_bitwise(depth: int) -> None:
    def at(value: float) -> Any:
        return [{"at": value}] if depth else value

    assert not same_object(at(0.0), at(-0.0))
    assert same_object(at(-0.0), at(-0.0))
    nan, with_payload = 0x7FF8000000000000, 0x7FF8000000000001
    assert same_object(at(float64(nan)), at(float64(nan)))
    assert not same_object(at(float64(nan)), at(float64(with_payload)))


# -- plain expectations --------------------------------------------------------------------------


def test_a_violation_says_what_was_expected_and_what_it_got() -> None:
    found = violation(lambda: expect(False, "three rows", [1, 2]))
    assert str(found) == "expected three rows; got [1, 2]"
    assert len(str(violation(lambda: expect(False, "less", list(range(10**4)))))) < 300
    expect(True, "three rows", "three")


@pytest.mark.parametrize(
    ("found", "expected"), [(1, True), (1, 1.0), ([], ()), ("a", "b"), (None, 0)], ids=repr
)
def test_equal_values_of_another_type_are_not_equal(found: Any, expected: Any) -> None:
    assert "the thing" in str(violation(lambda: expect_equal(found, expected, "the thing")))
    expect_equal(expected, expected, "the thing")


# -- rejections ----------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


@pytest.mark.parametrize("error", [KeyError("a"), IndexError(), LookupError(), UnknownSample("a")])
def test_a_lookup_error_is_right(error: Exception) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expect_lookup_error(raising(error), "an unknown id")


@pytest.mark.parametrize("error", [RuntimeError("gone"), ValueError(), AttributeError("None")])
def test_another_error_is_a_blemish(error: Exception) -> None:
    with pytest.warns(ShouldViolation, match=type(error).__name__) as warned:
        expect_lookup_error(raising(error), "an unknown id")
    assert len(warned) == 1
    assert "an unknown id: expected LookupError; got " in str(warned[0].message)


@pytest.mark.parametrize("found", [None, [], TensorDict({}, batch_size=[0]), "data"], ids=repr)
def test_an_answer_is_a_violation(found: object) -> None:
    error = violation(lambda: expect_rejection(lambda: found, "a wrong call"))
    assert error.expected == "a wrong call to be rejected with an error"


def test_an_error_of_another_kind_is_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expect_rejection(raising(UnicodeError("a")), "a wrong call", ValueError)
    with pytest.warns(ShouldViolation, match="expected ValueError; got KeyError"):
        expect_rejection(raising(KeyError("a")), "a wrong call", ValueError)


def test_what_a_helper_saw_in_the_answer_is_no_rejection() -> None:
    """A violation found in a returned value means that the plane did not raise."""
    found = ContractViolation("put_samples to return a meta", "None")
    for judge in (expect_rejection, expect_lookup_error):
        assert violation(lambda j=judge: j(raising(found), "a wrong call")) is found


def test_a_call_that_hangs_is_no_rejection() -> None:
    answer = threading.Event()
    late = BackgroundCall(answer.wait, "the call")
    try:
        found = violation(lambda: expect_rejection(lambda: late.result(0.01), "a wrong call"))
        assert "still runs" in found.got
    finally:
        answer.set()


def test_an_interrupt_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        expect_rejection(raising(KeyboardInterrupt()), "a wrong call")


def test_a_row_of_one_value_out_of_a_stride_can_be_shown() -> None:
    assert show_row(torch.arange(4.0)[::2][1:]) == "[2.0]"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bfloat16])
def test_a_row_that_spells_itself_in_another_dtype_is_read(dtype: torch.dtype) -> None:
    row = labeled_row("p", "a", "x", 3, width=64).view(dtype)
    assert show_row(row) == "row:p|a|x|v3"
