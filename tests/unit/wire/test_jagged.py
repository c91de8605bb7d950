"""Conversions of a field between padded and jagged layouts are compared with per-row loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlconform.certify.plugin.markers import requirement
from rlconform.wire import (
    pack_per_token_field,
    response_from_nested,
    rows_of,
    same_rows,
    stack_or_nest,
)
from rlconform.wire import ragged_rows as wire_rows

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
    torch.complex128,
)

ROW_LENGTHS = st.lists(st.integers(0, 6), max_size=6)
TRAILING = st.lists(st.integers(0, 3), max_size=2).map(tuple)


def random_bits(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Random bytes, so NaN payloads, infinities and -0.0 occur; 0 and 1 for bool."""
    generator = torch.Generator().manual_seed(seed)
    high = 2 if dtype == torch.bool else 256
    count = torch.empty(shape, dtype=dtype).nbytes
    raw = torch.randint(0, high, (count,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).view(shape)


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def is_list_of_rows(leaf: Tensor, expected: list[Tensor]) -> bool:
    """Whether the tensor is jagged with exactly these rows."""
    rows = rows_of(leaf)
    return (
        leaf.layout is torch.jagged
        and len(rows) == len(expected)
        and all(same_rows(a[None], b[None]) for a, b in zip(rows, expected, strict=True))
    )


class TestToNestedByLength:
    """Padded rows to jagged ones."""

    @settings(deadline=None, max_examples=150)
    @given(
        lengths=ROW_LENGTHS,
        spare=st.integers(0, 3),
        trailing=TRAILING,
        dtype=st.sampled_from(DTYPES),
        seed=st.integers(0, 1000),
    )
    def test_takes_each_rows_first_tokens(self, lengths, spare, trailing, dtype, seed):
        width = max(lengths, default=0) + spare
        padded = random_bits((len(lengths), width, *trailing), dtype, seed)
        nested = pack_per_token_field(padded, lengths)
        assert is_list_of_rows(nested, [padded[i, :n] for i, n in enumerate(lengths)])

    @pytest.mark.parametrize(
        "lengths",
        [
            [3, 0],
            (3, 0),
            torch.tensor([3, 0]),
            torch.tensor([3, 0], dtype=torch.int32),
            torch.tensor([3, 0], dtype=torch.uint16),
        ],
    )
    def test_takes_lengths_in_any_integer_form(self, lengths):
        padded = torch.arange(8).view(2, 4)
        nested = pack_per_token_field(padded, lengths)
        assert is_list_of_rows(nested, [padded[0, :3], padded[1, :0]])

    @pytest.mark.parametrize(
        "padded",
        [
            pytest.param(torch.arange(24).view(4, 6)[:, 1:5], id="sliced"),
            pytest.param(torch.arange(24, dtype=torch.uint8)[3:].view(3, 7)[:, :4], id="offset"),
            pytest.param(torch.arange(12).view(4, 3).t(), id="transposed"),
            pytest.param(torch.arange(3)[:, None].expand(3, 4), id="expanded columns"),
            pytest.param(torch.arange(4).expand(3, 4), id="expanded rows"),
            pytest.param(torch.arange(24).view(3, 8)[:, ::2], id="strided"),
            pytest.param(torch.randn(3, 4, requires_grad=True), id="requires grad"),
            pytest.param(torch.randn(3, 4, dtype=torch.complex64).conj(), id="conjugated"),
            pytest.param(torch.randn(3, 4, dtype=torch.complex64).conj().imag, id="negated"),
        ],
    )
    def test_reads_any_view_and_owns_the_result(self, padded):
        lengths = [4, 0, 2, 1][: len(padded)]
        expected = [padded[i, :n].detach().clone() for i, n in enumerate(lengths)]
        nested = pack_per_token_field(padded, lengths)
        assert is_list_of_rows(nested, expected)
        assert not nested.requires_grad
        assert storage_of(nested.values()) != storage_of(padded)

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32])
    @pytest.mark.parametrize("start", range(9))
    def test_reads_tokens_that_start_at_any_byte(self, dtype, start):
        """Trailing dimensions are copied in wider words, which an unaligned view does not allow."""
        buffer = random_bits((start + 2 * 3 * 8,), dtype)
        padded = buffer[start:].view(2, 3, 8)
        nested = pack_per_token_field(padded, [1, 3])
        assert is_list_of_rows(nested, [padded[0, :1], padded[1, :3]])

    def test_reads_a_single_token_cut_out_of_wider_rows(self):
        """Torch reports the tensor as contiguous although its first stride is odd."""
        padded = random_bits((4, 1, 11), torch.uint8)[1:2, :, :8]
        assert is_list_of_rows(pack_per_token_field(padded, [1]), [padded[0]])

    def test_carries_out_a_negation_that_is_contiguous(self):
        padded = torch.tensor([[1 + 2j]]).conj().imag
        assert padded.is_neg()
        assert padded.is_contiguous()
        assert pack_per_token_field(padded, [1]).values().tolist() == [-2.0]

    def test_result_does_not_follow_its_source(self):
        padded = torch.zeros(2, 3)
        nested = pack_per_token_field(padded, [3, 2])
        padded.fill_(7)
        assert nested.values().tolist() == [0.0] * 5

    @pytest.mark.parametrize(
        ("tokens", "size"),
        [
            (torch.zeros(2, 4, dtype=torch.uint8), 4),
            (torch.zeros(2, 3, dtype=torch.uint8), 1),
            (torch.zeros(2, 4, 6, dtype=torch.uint8), 8),
            (torch.zeros(3, 2, dtype=torch.float32), 8),
            (torch.zeros(3, dtype=torch.complex128), 8),
            (torch.zeros(18, dtype=torch.uint8)[2:].view(2, 8), 2),
        ],
        ids=["4 bytes", "3 bytes", "24 bytes", "8 bytes", "16 bytes", "8 bytes from byte 2"],
    )
    def test_tokens_are_copied_in_the_widest_words_that_fit(self, tokens, size):
        """The cost of a copy depends on the number of words."""
        assert wire_rows._word_size(tokens) == size

    def test_padding_never_cuts_a_row(self):
        with pytest.raises(ValueError, match=r"^width 2 is below the longest row, 3 tokens$"):
            wire_rows.RaggedRows([3, 1]).pad(torch.zeros(4), 2, 0)

    def test_index_widens_for_batches_beyond_int32(self, monkeypatch):
        monkeypatch.setattr(wire_rows, "_INT32_LIMIT", 11)
        lengths = wire_rows.RaggedRows([2, 0, 4])
        narrow = lengths._positions(torch.tensor([0, 3, 6]), 11)
        wide = lengths._positions(torch.tensor([0, 4, 8]), 12)
        assert (narrow.dtype, wide.dtype) == (torch.int32, torch.int64)
        assert (narrow.tolist(), wide.tolist()) == ([0, 1, 6, 7, 8, 9], [0, 1, 8, 9, 10, 11])

    @pytest.mark.parametrize(
        "lengths",
        [
            [1, 2, 3],
            [5, 1],
            [-1, 2],
            [1.0, 2.0],
            [True, False],
            [[1, 2]],
            torch.tensor(2),
        ],
        ids=["other rows", "too long", "negative", "floats", "bools", "2-D", "scalar"],
    )
    def test_rejects_lengths_that_do_not_fit(self, lengths):
        with pytest.raises(ValueError, match=r"lengths|per-token"):
            pack_per_token_field(torch.zeros(2, 4), lengths)


class TestPackPerTokenField:
    """A write-back of known row lengths."""

    def test_cuts_the_padding_of_sequence_parallelism_row_by_row(self):
        """WIRE-03: the write-back is as wide as the widest row rounded up."""
        lengths = torch.tensor([5, 0, 7, 3])
        written_back = random_bits((4, 8), torch.float32)
        packed = pack_per_token_field(written_back, lengths)
        assert is_list_of_rows(packed, [written_back[i, :n] for i, n in enumerate([5, 0, 7, 3])])

    @requirement("WIRE-07")
    @pytest.mark.parametrize(
        "values",
        [
            torch.zeros(3, 6),
            torch.zeros(3, 6, 7),
            torch.zeros(2, 7),
            torch.zeros(4, 7),
            torch.zeros(3),
            torch.zeros(3, 1),
            torch.zeros(()),
        ],
        ids=["one short", "one short, 3-D", "fewer rows", "more rows", "1-D", "(N, 1)", "scalar"],
    )
    def test_rejects_what_does_not_fit(self, values):
        """The function raises and does not return a rectangular column."""
        with pytest.raises(ValueError, match="per-token"):
            pack_per_token_field(values, [7, 0, 3])

    def test_takes_a_jagged_field_of_the_same_lengths(self):
        nested = pack_per_token_field(random_bits((3, 4), torch.float32), [2, 0, 4])
        packed = pack_per_token_field(nested, [2, 0, 4])
        assert is_list_of_rows(packed, rows_of(nested))
        assert storage_of(packed.values()) != storage_of(nested.values())

    @requirement("WIRE-07")
    @pytest.mark.parametrize("lengths", [[2, 1, 3], [2, 0], [2, 0, 4, 0]])
    def test_rejects_a_jagged_field_of_other_lengths(self, lengths):
        nested = pack_per_token_field(torch.zeros(3, 4), [2, 0, 4])
        with pytest.raises(ValueError, match="row lengths"):
            pack_per_token_field(nested, lengths)


class TestStackOrNest:
    """Rows to one column."""

    @settings(deadline=None, max_examples=150)
    @given(
        lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6),
        trailing=TRAILING,
        dtype=st.sampled_from(DTYPES),
        seed=st.integers(0, 1000),
    )
    def test_is_dense_exactly_where_all_shapes_agree(self, lengths, trailing, dtype, seed):
        rows = [random_bits((n, *trailing), dtype, seed + i) for i, n in enumerate(lengths)]
        column = stack_or_nest(rows)
        if len(set(lengths)) == 1:
            assert column.layout is torch.strided
            assert column.shape == (len(rows), lengths[0], *trailing)
            assert same_rows(column, torch.stack(rows))
        else:
            assert is_list_of_rows(column, rows)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_scalars_stack_to_one_dimension(self, dtype):
        scalars = list(random_bits((3,), dtype))
        assert same_rows(stack_or_nest(scalars), torch.stack(scalars))
        assert stack_or_nest(scalars).shape == (3,)

    def test_one_empty_row_is_dense(self):
        assert stack_or_nest([torch.zeros(0)]).shape == (1, 0)

    @pytest.mark.parametrize("count", [1, 2], ids=["dense", "jagged"])
    def test_owns_its_memory_and_needs_no_grad(self, count):
        rows = [torch.zeros(2, requires_grad=True), torch.zeros(3, requires_grad=True)]
        column = stack_or_nest(rows[:count])
        rows[0].detach().fill_(7)
        assert not column.requires_grad
        assert rows_of(column)[0].tolist() == [0.0, 0.0]

    def test_conjugated_rows_hold_what_they_show(self):
        row = torch.tensor([1 + 2j, 3 - 4j])
        for rows in ([row.conj()], [row.conj(), row[:1]]):
            assert rows_of(stack_or_nest(rows))[0].tolist() == [1 - 2j, 3 + 4j]

    @pytest.mark.parametrize(
        ("rows", "reason"),
        [
            ([], "^no rows"),
            ([torch.zeros(2), torch.zeros(2).long()], "'torch.float32', 'torch.int64'"),
            ([torch.zeros(2), torch.zeros(3).double()], "'torch.float32', 'torch.float64'"),
            ([torch.zeros(2, 3), torch.zeros(2, 4)], r"\(2, 3\), \(2, 4\)"),
            ([torch.zeros(2, 3), torch.zeros(4)], r"\(2, 3\), \(4,\)"),
            ([torch.zeros(()), torch.zeros(1)], r"\(\), \(1,\)"),
        ],
        ids=["none", "dtypes", "dtypes, ragged", "trailing", "dimensions", "scalar and vector"],
    )
    def test_rejects_rows_that_make_no_column(self, rows, reason):
        with pytest.raises(ValueError, match=reason):
            stack_or_nest(rows)


class TestResponseFromNested:
    """The response part of a model's outputs."""

    @requirement("WIRE-05")
    def test_logprob_of_the_next_token_sits_one_place_left(self):
        """The values show the token that each output predicts."""
        outputs = pack_per_token_field(torch.tensor([[10, 11, 12, 13], [20, 21, 22, 0]]), [4, 3])
        response = response_from_nested(outputs, torch.tensor([2, 1]))
        assert [row.tolist() for row in rows_of(response)] == [[11, 12], [21]]

    @requirement("WIRE-05")
    def test_outputs_that_name_the_next_token_name_the_response(self):
        """Each output is the next token, which a perfect model would predict."""
        tokens = [torch.arange(10, 16), torch.arange(20, 22), torch.arange(30, 31)]
        outputs = torch.nested.nested_tensor(
            [torch.cat([row[1:], torch.tensor([-1])]) for row in tokens], layout=torch.jagged
        )
        for responses in ([5, 1, 0], [2, 0, 0], [1, 1, 0]):
            expected = [row[len(row) - r :] for row, r in zip(tokens, responses, strict=True)]
            assert is_list_of_rows(response_from_nested(outputs, responses), expected)

    @requirement("WIRE-05")
    @settings(deadline=None, max_examples=150)
    @given(
        spans=st.lists(
            st.integers(0, 6).flatmap(
                lambda whole: st.tuples(st.just(whole), st.integers(0, max(whole - 1, 0)))
            ),
            max_size=6,
        ),
        trailing=TRAILING,
        dtype=st.sampled_from(DTYPES),
    )
    def test_equals_a_loop_over_rows(self, spans, trailing, dtype):
        wholes = [whole for whole, _ in spans]
        responses = [response for _, response in spans]
        padded = random_bits((len(spans), max(wholes, default=0), *trailing), dtype)
        outputs = pack_per_token_field(padded, wholes)
        expected = [
            row[len(row) - r - 1 : len(row) - 1] if r else row[:0]
            for row, r in zip(rows_of(outputs), responses, strict=True)
        ]
        assert is_list_of_rows(response_from_nested(outputs, responses), expected)

    def test_empty_rows_have_empty_responses(self):
        outputs = pack_per_token_field(torch.ones(3, 2), [0, 1, 2])
        response = response_from_nested(outputs, [0, 0, 0])
        assert [len(row) for row in rows_of(response)] == [0, 0, 0]

    def test_owns_its_memory(self):
        outputs = pack_per_token_field(torch.zeros(1, 3), [3])
        response = response_from_nested(outputs, [2])
        outputs.values().fill_(7)
        assert response.values().tolist() == [0.0, 0.0]

    @requirement("WIRE-05")
    @pytest.mark.parametrize("lengths", [[3, 1], [4, 1], [1, 1], [2], [2, 0, 0], [-1, 0]], ids=str)
    def test_rejects_a_response_that_its_row_cannot_hold(self, lengths):
        outputs = pack_per_token_field(torch.zeros(2, 3), [3, 1])
        with pytest.raises(ValueError, match=r"respon|negative"):
            response_from_nested(outputs, lengths)

    def test_rejects_a_dense_tensor(self):
        with pytest.raises(TypeError, match=r"^response_from_nested takes a jagged tensor"):
            response_from_nested(torch.zeros(2, 3), [1, 1])
