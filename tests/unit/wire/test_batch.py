"""``pack_jagged_fields`` and ``materialize`` convert complete batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import NonTensorData, TensorDict

from rlconform.certify.plugin.markers import requirement
from rlconform.wire import (
    materialize,
    object_column,
    object_rows,
    pack_jagged_fields,
    pack_per_token_field,
    rows_of,
    same_rows,
)

LENGTHS = [3, 0, 5, 1]
TEXTS = ["a", None, {"k": [1]}, ("t", 2)]


def rollout(width: int = 6) -> TensorDict:
    """Four padded rows with one column of every kind that a rollout writes."""
    n = len(LENGTHS)
    texts = np.empty(n, dtype=object)
    texts[:] = TEXTS
    return TensorDict(
        {
            "input_ids": torch.arange(1, n * width + 1).view(n, width),
            "token_mask": torch.ones(n, width, dtype=torch.bool),
            "advantages": torch.linspace(-1, 1, n * width).view(n, width).bfloat16(),
            "input_lengths": torch.tensor(LENGTHS, dtype=torch.int32),
            "sample_mask": torch.ones(n),
            "loss_multiplier": torch.ones(n, 1),
            "scores": torch.randn(n, width),
            "pixels": torch.randn(n, width, 4),
            "routed_experts": torch.randint(0, 64, (n, width, 2, 3), dtype=torch.uint8),
            "text": texts,
            "stacked": object_column(TEXTS),
        },
        [n],
    )


def padded_by_hand(rows, width, pad_value):
    out = torch.full((len(rows), width, *rows[0].shape[1:]), pad_value, dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


class TestPackJaggedFields:
    """``pack_jagged_fields``, which writers use."""

    def test_packs_the_contracts_per_token_fields_and_no_other(self):
        batch = rollout()
        packed = pack_jagged_fields(batch, LENGTHS)
        jagged = {name for name, leaf in packed.items() if getattr(leaf, "is_nested", False)}
        assert jagged == {"input_ids", "token_mask", "advantages", "routed_experts"}
        for name in jagged:
            expected = [batch[name][i, :n] for i, n in enumerate(LENGTHS)]
            assert all(map(torch.equal, rows_of(packed[name]), expected))

    def test_keeps_every_other_column_as_it_is(self):
        """WIRE-04; no leaf is lost."""
        batch = rollout()
        packed = pack_jagged_fields(batch, LENGTHS)
        assert list(packed.keys()) == list(batch.keys())
        for name in ("input_lengths", "sample_mask", "loss_multiplier", "scores", "pixels"):
            assert packed[name].shape == batch[name].shape
            assert same_rows(packed[name], batch[name])
        for name in ("text", "stacked"):
            assert object_rows(packed.get(name), 4) == TEXTS

    def test_named_fields_are_packed_whatever_their_dimensions(self):
        batch = rollout()
        packed = pack_jagged_fields(batch, LENGTHS, token_fields=["routed_experts", "absent"])
        assert not packed["input_ids"].is_nested
        assert not packed["pixels"].is_nested
        expected = [batch["routed_experts"][i, :n] for i, n in enumerate(LENGTHS)]
        assert all(map(torch.equal, rows_of(packed["routed_experts"]), expected))

    def test_packed_fields_are_equally_ragged_to_torch(self):
        packed = pack_jagged_fields(rollout(), LENGTHS)
        total = packed["advantages"] * packed["token_mask"] + packed["input_ids"]
        assert [len(row) for row in rows_of(total)] == LENGTHS

    def test_per_sample_columns_of_a_token_fields_name_stay(self):
        batch = TensorDict({"input_ids": torch.ones(2, 3), "advantages": torch.ones(2)}, [2])
        assert pack_jagged_fields(batch, [1, 2])["advantages"].shape == (2,)

    def test_ragged_patches_pass(self):
        patches = pack_per_token_field(torch.randn(2, 9, 4), [9, 2])
        batch = TensorDict({"input_ids": torch.ones(2, 3), "patches": patches}, [2])
        assert same_rows(pack_jagged_fields(batch, [1, 2])["patches"], patches)

    def test_carries_no_grad(self):
        weights = torch.ones(2, 3, requires_grad=True)
        batch = TensorDict({"advantages": weights, "scores": weights}, [2])
        packed = pack_jagged_fields(batch, [1, 2])
        assert not any(leaf.requires_grad for leaf in packed.values())

    @requirement("WIRE-07")
    @pytest.mark.parametrize("width", [1, 4])
    def test_rejects_a_per_token_field_that_is_too_narrow(self, width):
        """The field must not stay rectangular."""
        batch = rollout()
        batch["advantages"] = batch["advantages"][:, :width]
        with pytest.raises(ValueError, match="'advantages'"):
            pack_jagged_fields(batch, LENGTHS)

    @requirement("WIRE-07")
    def test_rejects_a_named_field_that_is_too_narrow_whatever_its_dimensions(self):
        batch = rollout()
        batch["routed_experts"] = batch["routed_experts"][:, :4]
        with pytest.raises(ValueError, match="'routed_experts'"):
            pack_jagged_fields(batch, LENGTHS, token_fields=["input_ids", "routed_experts"])

    @requirement("WIRE-07")
    def test_rejects_a_jagged_field_of_other_lengths(self):
        batch = rollout()
        batch["advantages"] = pack_per_token_field(batch["advantages"], [3, 0, 4, 1])
        with pytest.raises(ValueError, match="'advantages'"):
            pack_jagged_fields(batch, LENGTHS)

    @requirement("WIRE-07")
    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("sample_mask", r"\(4, 5 or more, \.\.\.\), got \(4,\)"),
            ("loss_multiplier", r"\(4, 5 or more, \.\.\.\), got \(4, 1\)"),
            ("text", "a per-token field must be a tensor, got an object column"),
        ],
    )
    def test_rejects_a_named_field_that_cannot_be_per_token(self, name, reason):
        with pytest.raises(ValueError, match=f"^field '{name}': .*{reason}$"):
            pack_jagged_fields(rollout(), LENGTHS, token_fields=[name])

    @requirement("WIRE-07")
    @pytest.mark.parametrize("lengths", [[3, 0, 5], [3, 0, 5, 1, 1], [3, 0, 7, 1], [3, -1, 5, 1]])
    def test_rejects_lengths_of_another_batch(self, lengths):
        with pytest.raises(ValueError, match=r"lengths|per-token"):
            pack_jagged_fields(rollout(), lengths)

    @requirement("WIRE-07")
    def test_counts_lengths_even_where_nothing_is_packed(self):
        with pytest.raises(ValueError, match="3 lengths for a batch of 2"):
            pack_jagged_fields(TensorDict({"x": torch.ones(2)}, [2]), [1, 1, 1])


class TestMaterialize:
    """``materialize``, which readers use."""

    @settings(deadline=None, max_examples=100)
    @given(
        lengths=st.lists(st.integers(0, 6), max_size=6),
        spare=st.integers(0, 3),
        trailing=st.lists(st.integers(0, 3), max_size=2).map(tuple),
        dtype=st.sampled_from([torch.bool, torch.uint16, torch.float8_e4m3fn, torch.bfloat16])
        | st.sampled_from([torch.int64, torch.float32, torch.complex128]),
        pad_value=st.sampled_from([0, 1]),
    )
    def test_undoes_packing(self, lengths, spare, trailing, dtype, pad_value):
        """WIRE-01: valid tokens bit for bit, the field's pad value elsewhere."""
        width = max(lengths, default=0)
        shape = (len(lengths), width + spare, *trailing)
        padded = torch.randint(0, 2, shape).to(dtype)
        batch = TensorDict({"x": padded}, [len(lengths)])
        packed = pack_jagged_fields(batch, lengths, token_fields=["x"])
        back = materialize(packed, pad_value_dict={"x": pad_value})["x"]
        expected = torch.full((len(lengths), width, *trailing), pad_value, dtype=dtype)
        for i, n in enumerate(lengths):
            expected[i, :n] = padded[i, :n]
        assert back.shape == expected.shape
        assert same_rows(back, expected)

    def test_keeps_payloads_of_nan_and_the_sign_of_zero(self):
        bits = torch.tensor([[0x7FC00001, -0x80000000, -0x400000, 0x7F800001]], dtype=torch.int32)
        packed = pack_jagged_fields(
            TensorDict({"advantages": bits.view(torch.float32)}, [1]), [4], ["advantages"]
        )
        assert materialize(packed)["advantages"].view(torch.int32).tolist() == bits.tolist()

    def test_pads_every_per_token_field_to_one_width(self):
        packed = pack_jagged_fields(rollout(), LENGTHS)
        back = materialize(packed, pad_value_dict={"input_ids": 99, "absent": 1})
        for name, pad in (("input_ids", 99), ("token_mask", 0), ("advantages", 0)):
            assert same_rows(back[name], padded_by_hand(rows_of(packed[name]), 5, pad))
        assert list(back.keys()) == list(packed.keys())

    def test_pads_dense_and_jagged_alike_to_the_steps_width(self):
        """WIRE-02."""
        batch = TensorDict(
            {
                "input_ids": torch.ones(2, 3),
                "token_mask": pack_per_token_field(torch.ones(2, 3).bool(), [1, 3]),
                "image": torch.ones(2, 3),
            },
            [2],
        )
        back = materialize(batch, pad_to_seqlen=8, pad_value_dict={"input_ids": -1})
        assert back["input_ids"].tolist() == [[1.0] * 3 + [-1.0] * 5] * 2
        assert back["token_mask"].sum(1).tolist() == [1, 3]
        assert back["token_mask"].shape == (2, 8)
        assert back["image"].shape == (2, 3)

    @pytest.mark.parametrize("layout", ["padded", "jagged"])
    @pytest.mark.parametrize("token_fields", [None, ["input_ids", "routes"]], ids=str)
    def test_a_uniform_field_may_come_in_either_layout(self, layout, token_fields):
        columns = {"input_ids": torch.arange(6).view(2, 3)}
        if token_fields:
            columns |= {"routes": torch.arange(24).view(2, 3, 4), "patches": torch.ones(2, 2)}
        other = {"token_mask": pack_per_token_field(torch.ones(2, 7), [7, 4])}
        nested = {name: pack_per_token_field(c, [c.shape[1]] * 2) for name, c in columns.items()}
        results = [
            materialize(
                TensorDict(form | other, [2]), layout, {"routes": 7}, token_fields=token_fields
            )
            for form in (columns, nested)
        ]
        for name in columns.keys() - {"patches"}:
            assert results[0][name].layout == results[1][name].layout
            assert same_rows(results[0][name], results[1][name])
        if layout == "padded" and token_fields:
            assert same_rows(results[0]["patches"], results[1]["patches"])

    def test_a_ragged_field_off_the_tokens_keeps_its_own_width(self):
        batch = TensorDict(
            {
                "input_ids": pack_per_token_field(torch.ones(2, 3), [1, 3]),
                "patches": pack_per_token_field(torch.ones(2, 9, 4), [9, 2]),
            },
            [2],
        )
        back = materialize(batch, pad_to_seqlen=5, token_fields=["input_ids"])
        assert back["input_ids"].shape == (2, 5)
        assert back["patches"].shape == (2, 9, 4)

    def test_jagged_layout_keeps_rows(self):
        packed = pack_jagged_fields(rollout(), LENGTHS)
        back = materialize(packed, "jagged")
        for name in ("input_ids", "token_mask", "advantages"):
            assert back[name].layout is torch.jagged
            assert same_rows(back[name], packed[name])
        assert same_rows(back["pixels"], packed["pixels"])

    def test_reads_jagged_leaves_with_gaps(self):
        grid = torch.arange(12).view(3, 4)
        gapped = torch.nested.narrow(
            grid, 1, torch.tensor([1, 0, 0]), torch.tensor([2, 0, 4]), layout=torch.jagged
        )
        batch = TensorDict({"input_ids": gapped}, [3])
        assert materialize(batch)["input_ids"].tolist() == [[1, 2, 0, 0], [0] * 4, [8, 9, 10, 11]]
        assert same_rows(materialize(batch, "jagged")["input_ids"], gapped)

    @pytest.mark.parametrize("layout", ["padded", "jagged"])
    def test_results_own_their_memory(self, layout):
        batch = TensorDict(
            {
                "input_ids": pack_per_token_field(torch.zeros(2, 3), [3, 3]),
                "advantages": torch.zeros(2, 3),
                "scores": torch.zeros(1, 3).expand(2, 3),
                "grad": torch.zeros(2, requires_grad=True),
            },
            [2],
        )
        back = materialize(batch, layout)
        for leaf in batch.values():
            (leaf.values() if leaf.is_nested else leaf.detach()[:1]).fill_(7)
        for name, leaf in back.items():
            assert all(row.count_nonzero() == 0 for row in rows_of(leaf)), name
            assert not leaf.requires_grad
        back["scores"][0] = 1
        assert back["scores"][1].count_nonzero() == 0

    def test_lazily_conjugated_columns_hold_what_they_show(self):
        conjugated = torch.tensor([1 + 2j, 3 - 4j]).conj()
        back = materialize(TensorDict({"x": conjugated, "y": conjugated.imag}, [2]))
        assert not back["x"].is_conj()
        assert not back["y"].is_neg()
        assert (back["x"].tolist(), back["y"].tolist()) == ([1 - 2j, 3 + 4j], [-2.0, 4.0])

    @pytest.mark.parametrize("layout", ["padded", "jagged"])
    def test_object_columns_come_one_value_per_row(self, layout):
        batch = rollout()
        batch["shared"] = NonTensorData("all", batch_size=[4])
        back = materialize(pack_jagged_fields(batch, LENGTHS), layout)[1:3]
        assert object_rows(back.get("text"), 2) == TEXTS[1:3]
        assert object_rows(back.get("stacked"), 2) == TEXTS[1:3]
        assert object_rows(back.get("shared"), 2) == ["all", "all"]

    def test_object_columns_alone(self):
        back = materialize(TensorDict({"text": object_column(TEXTS)}, [4]), pad_to_seqlen=8)
        assert object_rows(back.get("text"), 4) == TEXTS

    @pytest.mark.parametrize("layout", ["padded", "jagged"])
    def test_an_empty_batch(self, layout):
        batch = TensorDict(
            {
                "input_ids": torch.zeros(0, 3),
                "sample_mask": torch.zeros(0),
                "pixels": torch.zeros(0, 2, 2),
                "text": object_column([]),
            },
            [0],
        )
        back = materialize(pack_jagged_fields(batch, []), layout, pad_to_seqlen=4)
        assert back.batch_size == (0,)
        assert list(back.keys()) == list(batch.keys())
        assert rows_of(back["input_ids"]) == []
        assert back["pixels"].shape == (0, 2, 2)
        if layout == "padded":
            assert back["input_ids"].shape == (0, 4)

    def test_rows_without_tokens(self):
        batch = TensorDict({"input_ids": torch.zeros(3, 4), "x": torch.zeros(3, 4, 2)}, [3])
        packed = pack_jagged_fields(batch, [0, 0, 0], ["input_ids", "x"])
        assert materialize(packed)["x"].shape == (3, 0, 2)
        padded = materialize(packed, pad_to_seqlen=2, pad_value_dict={"x": 7})
        assert padded["x"].tolist() == [[[7.0, 7.0]] * 2] * 3

    @pytest.mark.parametrize("name", ["input_ids", "advantages"])
    def test_rejects_a_row_longer_than_the_steps_width(self, name):
        batch = TensorDict(
            {
                "input_ids": pack_per_token_field(torch.ones(2, 4), [1, 4]),
                "advantages": torch.ones(2, 5),
            },
            [2],
        ).select(name)
        with pytest.raises(ValueError, match=f"'{name}'.*pad_to_seqlen=3"):
            materialize(batch, pad_to_seqlen=3)

    @pytest.mark.parametrize(
        ("dtype", "pad_value"),
        [
            (torch.int64, 0.5),
            (torch.uint8, -100),
            (torch.uint8, 256),
            (torch.int32, float("nan")),
            (torch.bool, 2),
            (torch.float32, 1j),
        ],
    )
    def test_rejects_a_pad_value_that_the_dtype_cannot_hold(self, dtype, pad_value):
        nested = pack_per_token_field(torch.ones(2, 3).to(dtype), [1, 3])
        with pytest.raises(ValueError, match=r"'x'.*does not fit"):
            materialize(TensorDict({"x": nested}, [2]), pad_value_dict={"x": pad_value})

    @pytest.mark.parametrize("pad_value", [-100, 2**63 - 1, -(2**63)])
    def test_pads_integers_exactly(self, pad_value):
        """A kernel with a float pad value would round large integers."""
        nested = pack_per_token_field(torch.ones(2, 2).long(), [0, 2])
        batch = TensorDict({"x": nested}, [2])
        back = materialize(batch, pad_value_dict={"x": pad_value})
        assert back["x"].tolist() == [[pad_value, pad_value], [1, 1]]

    def test_pads_with_nan(self):
        nested = pack_per_token_field(torch.zeros(2, 2), [0, 2])
        batch = TensorDict({"x": nested}, [2])
        back = materialize(batch, pad_value_dict={"x": float("nan")})
        assert back["x"].isnan().tolist() == [[True, True], [False, False]]

    @pytest.mark.parametrize(
        ("name", "reason"),
        [("sample_mask", r"\(N, S, \.\.\.\), got \(4,\)"), ("text", "got an object column")],
    )
    def test_rejects_a_named_field_without_tokens(self, name, reason):
        with pytest.raises(ValueError, match=f"^field '{name}': a per-token field .*{reason}$"):
            materialize(rollout(), token_fields=[name])

    def test_rejects_an_object_column_that_lost_its_rows(self):
        with pytest.raises(ValueError, match="'text'"):
            materialize(rollout()[:2])

    def test_rejects_an_unknown_layout(self):
        with pytest.raises(ValueError, match="one of padded, jagged, got 'strided'"):
            materialize(rollout(), "strided")


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize(
    "make_leaf",
    [
        lambda: TensorDict({"a": torch.zeros(2)}, [2]),
        lambda: torch.eye(2).to_sparse(),
    ],
    ids=["TensorDict", "sparse"],
)
@pytest.mark.parametrize("code", [materialize, lambda batch: pack_jagged_fields(batch, [1, 1])])
def test_a_leaf_that_cannot_travel_is_never_dropped(code, make_leaf):
    batch = TensorDict({"input_ids": torch.ones(2, 3), "odd": make_leaf()}, [2])
    with pytest.raises(TypeError, match="'odd'"):
        code(batch)


@pytest.mark.filterwarnings("ignore:.*nested tensors")
class TestNestedInTheOlderLayout:
    """A plane may return torch's default layout, but a producer may not put it."""

    ROWS = (torch.arange(2.0), torch.arange(3.0))

    def batch(self, rows):
        return TensorDict({"advantages": torch.nested.nested_tensor(list(rows))}, [len(rows)])

    def test_is_read_as_rows(self):
        padded = materialize(self.batch(self.ROWS), "padded", {"advantages": 7.0}, 4)
        assert padded["advantages"].tolist() == [[0, 1, 7, 7], [0, 1, 2, 7]]
        assert same_rows(
            materialize(self.batch(self.ROWS), "jagged").get("advantages"),
            torch.nested.nested_tensor(list(self.ROWS), layout=torch.jagged),
        )

    def test_equal_rows_are_read_too(self):
        padded = materialize(self.batch([torch.ones(2)] * 3), "padded", None, 3)
        assert padded["advantages"].tolist() == [[1, 1, 0]] * 3

    def test_rows_that_no_column_holds_are_named(self):
        odd = self.batch([torch.ones(2, 3), torch.ones(2, 1)])
        with pytest.raises(ValueError, match=r"'advantages'.*differ"):
            materialize(odd)

    def test_is_not_packed(self):
        with pytest.raises(TypeError, match="'advantages'"):
            pack_jagged_fields(self.batch(self.ROWS), [2, 3])


@pytest.mark.parametrize("code", [materialize, lambda batch: pack_jagged_fields(batch, [1])])
@pytest.mark.parametrize("batch_size", [[], [1, 3]], ids=str)
def test_a_batch_has_one_dimension_of_rows(code, batch_size):
    batch = TensorDict({"input_ids": torch.ones(1, 3)}, batch_size)
    with pytest.raises(ValueError, match="batch size"):
        code(batch)
