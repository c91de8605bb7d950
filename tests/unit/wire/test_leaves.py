"""A leaf's kind and rows, and the comparison of leaves independent of layout."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, TensorDict

from rlconform.wire import (
    classify_leaf,
    object_column,
    pack_per_token_field,
    rows_of,
    same_rows,
)

JAGGED = pack_per_token_field(torch.arange(12).view(3, 4), [2, 0, 4])
GAPPED = torch.nested.narrow(
    torch.arange(12).view(3, 4),
    1,
    torch.tensor([0, 1, 1]),
    torch.tensor([2, 0, 3]),
    layout=torch.jagged,
)


def strided_nested(lengths):
    return torch.nested.nested_tensor([torch.ones(n) for n in lengths], layout=torch.strided)


class TestClassifyLeaf:
    """Accepted and refused leaves."""

    @pytest.mark.parametrize(
        ("leaf", "kind"),
        [
            (torch.zeros(3), "dense"),
            (torch.zeros(3, 0, 2), "dense"),
            (torch.zeros(3, 1).expand(3, 5), "dense"),
            (torch.nn.Parameter(torch.zeros(3)), "dense"),
            (JAGGED, "jagged"),
            (GAPPED, "jagged"),
            (object_column(["a", None]), "object"),
            (NonTensorData("a", batch_size=[3]), "object"),
            (np.array(["a", None], dtype=object), "object"),
            (["a", None], "object"),
            (TensorDict({"m": object_column(["a"])}, [1])["m"], "object"),
        ],
    )
    def test_names_what_can_travel(self, leaf, kind):
        assert classify_leaf(leaf) == kind

    @pytest.mark.filterwarnings("ignore:.*(nested tensors|Sparse CSR|quantize_per_tensor)")
    @pytest.mark.parametrize(
        "make_leaf",
        [
            lambda: TensorDict({"a": torch.zeros(2)}, [2]),
            lambda: torch.eye(3).to_sparse(),
            lambda: torch.eye(4).to_sparse_csr(),
            lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
            lambda: strided_nested([2, 3]),
            lambda: pack_per_token_field(torch.zeros(2, 3, 4), [2, 3]).transpose(1, 2),
            lambda: np.arange(3),
            lambda: {"a": 1},
            lambda: "text",
            lambda: None,
        ],
        ids=[
            "TensorDict",
            "sparse COO",
            "sparse CSR",
            "quantized",
            "strided nested",
            "ragged in dim 2",
            "numeric array",
            "dict",
            "str",
            "None",
        ],
    )
    def test_rejects_everything_else(self, make_leaf):
        leaf = make_leaf()
        with pytest.raises(TypeError, match="a leaf must be"):
            classify_leaf(leaf)

    @pytest.mark.filterwarnings("ignore:.*nested tensors")
    @pytest.mark.parametrize(
        ("make_leaf", "described"),
        [
            (lambda: torch.eye(3).to_sparse(), "a torch.float32 tensor of 2 dimensions and layout"),
            (lambda: strided_nested([2, 3]), "a nested torch.float32 tensor of 2 dimensions"),
            (lambda: np.arange(3), "ndarray"),
        ],
        ids=["sparse", "strided nested", "numeric array"],
    )
    def test_names_the_kind_of_leaf(self, make_leaf, described):
        leaf = make_leaf()
        with pytest.raises(TypeError, match=f"got {described}"):
            classify_leaf(leaf)


class TestRowsOf:
    """The rows of a leaf."""

    def test_dense_rows_are_views(self):
        leaf = torch.zeros(2, 3)
        rows_of(leaf)[1].fill_(7)
        assert leaf.tolist() == [[0, 0, 0], [7, 7, 7]]

    def test_jagged_rows_are_views(self):
        leaf = pack_per_token_field(torch.zeros(2, 3), [1, 2])
        rows_of(leaf)[1].fill_(7)
        assert leaf.values().tolist() == [0, 7, 7]

    @pytest.mark.parametrize("bounds", [[0, 2, 2, 5], [2, 3, 3, 7], [1, 2, 4, 10]])
    def test_jagged_rows_may_leave_out_tokens_at_either_end(self, bounds):
        values = torch.arange(10)
        leaf = torch.nested.nested_tensor_from_jagged(values, torch.tensor(bounds))
        expected = [values[a:b].tolist() for a, b in pairwise(bounds)]
        assert [row.tolist() for row in rows_of(leaf)] == expected

    def test_jagged_rows_may_have_gaps(self):
        assert [row.tolist() for row in rows_of(GAPPED)] == [[0, 1], [], [9, 10, 11]]

    @pytest.mark.filterwarnings("ignore:.*nested tensors")
    def test_other_nested_tensors_have_rows_too(self):
        assert [row.shape for row in rows_of(strided_nested([2, 3]))] == [(2,), (3,)]
        turned = pack_per_token_field(torch.arange(12).view(2, 3, 2), [1, 3]).transpose(1, 2)
        assert [row.shape for row in rows_of(turned)] == [(2, 1), (2, 3)]

    def test_no_rows_no_list_items(self):
        assert rows_of(torch.zeros(0, 3)) == []
        assert rows_of(pack_per_token_field(torch.zeros(0, 3), [])) == []

    def test_needs_no_grad(self):
        leaf = torch.zeros(2, 3, requires_grad=True)
        assert not any(row.requires_grad for row in rows_of(leaf))
        nested = torch.nested.as_nested_tensor([leaf[0], leaf[1, :1]], layout=torch.jagged)
        assert not any(row.requires_grad for row in rows_of(nested))

    @pytest.mark.parametrize(
        ("leaf", "reason"),
        [
            (["a"], "no rows in list"),
            (np.zeros(2), "no rows in ndarray"),
            (torch.eye(2).to_sparse(), "no rows in Tensor"),
            (torch.zeros(()), "a tensor without dimensions has no rows"),
        ],
    )
    def test_rejects_what_has_none(self, leaf, reason):
        with pytest.raises(TypeError, match=f"^{reason}$"):
            rows_of(leaf)


class TestSameRows:
    """Bitwise comparison, independent of layout."""

    def test_layout_does_not_count(self):
        dense = torch.arange(6).view(2, 3)
        assert same_rows(dense, pack_per_token_field(dense, [3, 3]))

    def test_every_bit_counts(self):
        zeros = torch.zeros(2)
        assert not same_rows(zeros, -zeros)
        quiet = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
        assert same_rows(quiet, quiet.clone())
        assert not same_rows(quiet, quiet.flip(0))

    @pytest.mark.parametrize(
        "other",
        [
            torch.zeros(2, 3, dtype=torch.int64),
            torch.zeros(3, 3),
            torch.zeros(1, 3),
            torch.zeros(2, 3, 1),
            torch.zeros(2, 1),
            pack_per_token_field(torch.zeros(2, 3), [3, 2]),
        ],
        ids=["dtype", "more rows", "fewer rows", "dimensions", "width", "ragged"],
    )
    def test_dtype_count_and_row_shape_count(self, other):
        assert not same_rows(torch.zeros(2, 3), other)

    def test_a_column_of_one_is_not_a_vector(self):
        assert not same_rows(torch.zeros(2), torch.zeros(2, 1))
