"""WIRE: the codec stores padded batches as jagged columns and pads them again when read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.codec_round_trip import (
    STEP_FIELDS,
    StepBatch,
    expect_logs_rebuilt,
    expect_rows_by_id,
    padded,
    write_with_logs,
)
from rlconform.certify.scenarios.labeled_rows import random_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.rollouts import PAD_TOKEN_ID, SyntheticRollout, rollout_batch
from rlconform.contract import Target
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN

TOKENS = ("input_ids", "generation_logprobs", "token_mask")

#: Row lengths that a plane or the codec may handle wrongly.
LENGTHS: dict[str, list[int]] = {
    "none_empty": [3, 1, 5, 2],
    "empty_first": [0, 4, 2],
    "empty_inside": [3, 0, 0, 5],
    "empty_last": [2, 4, 0],
    "all_empty": [0, 0, 0],
    "all_equal": [4, 4, 4],
    "one_row": [3],
    "one_empty_row": [0],
}

#: Different for each field and not 0, so that a field with another's padding fails the check.
PADS = {
    "input_ids": PAD_TOKEN_ID,
    "generation_logprobs": -1.5,
    "token_mask": 7,
    "advantages": 1,
    "prev_logprobs": -2.5,
}


@pytest.fixture
def part(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a partition with the columns of a training step."""
    return new_partition(fields=STEP_FIELDS)


def columns_of(
    lengths: list[int], width: int | None = None, seed: int = 0, **dtypes: torch.dtype
) -> dict[str, torch.Tensor]:
    """Return padded columns of random bits, with random padding."""
    columns = {"input_lengths": torch.tensor(lengths)}
    for index, (name, dtype) in enumerate(dtypes.items()):
        columns[name] = noisy(random_rows(dtype, [(n,) for n in lengths], seed + index), width)
    return columns


def noisy(rows: list[torch.Tensor], width: int | None = None) -> torch.Tensor:
    """Return the rows as one randomly padded column, as wide as given or as the longest row."""
    width = max(map(len, rows)) if width is None else width
    whole = torch.stack(random_rows(rows[0].dtype, [(width, *rows[0].shape[1:])] * len(rows), 99))
    for place, row in zip(whole, rows, strict=True):
        place[: len(row)] = row
    return whole


def rounded_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def shortest_to_longest(rollout: SyntheticRollout) -> list[int]:
    """Return the row numbers, sorted by the length of the row."""
    return sorted(range(len(rollout.lengths)), key=rollout.lengths.__getitem__)


def ids_of(lengths: list[int]) -> list[str]:
    return [f"u{row}_g0" for row in range(len(lengths))]


def logprobs_for(lengths: Sequence[int], multiple: int = 1, seed: int = 0) -> torch.Tensor:
    """Return a rank's result, as wide as its longest row, rounded up to ``multiple``."""
    rows = random_rows(torch.float32, [(length,) for length in lengths], seed)
    return noisy(rows, rounded_up(max(lengths), multiple))


# -- WIRE-01: padded, jagged, padded again ---------------------------------------------------------


@requirement("WIRE-01")
def test_a_rollout_comes_back_with_the_padding_of_each_field(part: PartitionUnderTest) -> None:
    rollout = rollout_batch(4, 4, aborted=2, width_multiple=8)
    step = StepBatch(part, rollout.sample_ids, rollout.columns, tags=rollout.tags)
    per_sample = ["sample_mask", "total_reward", "input_lengths"]
    step.expect_padded(rollout.sample_ids, [*TOKENS, *per_sample], pads=PADS)


@requirement("WIRE-01")
def test_rows_come_back_padded_in_any_order_asked(part: PartitionUnderTest) -> None:
    rollout = rollout_batch(3, 4, seed=1)
    step = StepBatch(part, rollout.sample_ids, rollout.columns)
    shortest_first = step.meta.subset(shortest_to_longest(rollout)).sample_ids
    step.expect_padded(shortest_first, TOKENS, pads=PADS)
    step.expect_padded(shortest_first[::-5], TOKENS, pads=PADS)


@requirement("WIRE-01")
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_rows_keep_their_lengths(part: PartitionUnderTest, lengths: list[int]) -> None:
    columns = columns_of(lengths, 6, input_ids=torch.int64, token_mask=torch.int32)
    step = StepBatch(part, ids_of(lengths), columns)
    step.expect_padded(step.meta.sample_ids, ["input_ids", "token_mask"], width=7, pads=PADS)


@requirement("WIRE-01")
@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32],
    ids=str,
)
def test_valid_tokens_come_back_bitwise(part: PartitionUnderTest, dtype: torch.dtype) -> None:
    lengths = [3, 0, 5, 2]
    columns = columns_of(lengths, tokens=dtype)
    step = StepBatch(part, ids_of(lengths), columns, token_fields={"tokens"})
    step.expect_padded(step.meta.sample_ids, ["tokens"], pads={"tokens": 1})


@requirement("WIRE-01")
@pytest.mark.parametrize("value", [0, PAD_TOKEN_ID], ids=["zero", "pad_token_id"])
def test_tokens_equal_to_the_padding_value_are_kept(part: PartitionUnderTest, value: int) -> None:
    """Many tokenizers use one token both for the end of a row and for padding."""
    lengths = [4, 2, 3]
    tokens = torch.arange(1, 16).view(3, 5)
    for row, length in zip(tokens, lengths, strict=True):
        row[length - 2 :] = value
    columns = {"input_lengths": torch.tensor(lengths), "input_ids": tokens}
    step = StepBatch(part, ids_of(lengths), columns)
    other = PAD_TOKEN_ID - value
    step.expect_padded(step.meta.sample_ids, ["input_ids"], width=5, pads={"input_ids": other})


@requirement("WIRE-01")
@pytest.mark.parametrize("lengths", [[3, 0, 5, 1], [4, 4]], ids=str)
def test_tokens_with_trailing_dimensions_come_back(
    part: PartitionUnderTest, lengths: list[int]
) -> None:
    """Router replay stores a tensor of shape (layers, experts) for each token."""
    columns = {
        "input_lengths": torch.tensor(lengths),
        "routes": noisy(random_rows(torch.uint8, [(n, 2, 3) for n in lengths]), 6),
        "hidden": noisy(random_rows(torch.bfloat16, [(n, 4) for n in lengths]), 6),
    }
    step = StepBatch(part, ids_of(lengths), columns, token_fields={"routes", "hidden"})
    pads = {"routes": 255, "hidden": -1.0}
    step.expect_padded(step.meta.sample_ids, ["routes", "hidden"], width=8, pads=pads)


# -- WIRE-02: one width for a step -----------------------------------------------------------------


@requirement("WIRE-02")
def test_every_shard_is_padded_to_the_width_set_by_the_driver(part: PartitionUnderTest) -> None:
    rollout = rollout_batch(4, 4, seed=2)
    width = rounded_up(max(rollout.lengths), 16)
    info = {GLOBAL_FORWARD_PAD_SEQLEN: width}
    step = StepBatch(part, rollout.sample_ids, rollout.columns, extra_info=info)
    by_length = shortest_to_longest(rollout)
    for start in range(0, step.meta.size, 4):  # only the last shard holds the longest row
        shard = step.meta.subset(by_length[start : start + 4])
        due = shard.extra_info[GLOBAL_FORWARD_PAD_SEQLEN]
        step.expect_padded(shard.sample_ids, TOKENS, due, rollout.pad_values)


@requirement("WIRE-02")
def test_dense_and_jagged_fields_share_the_width(part: PartitionUnderTest) -> None:
    """A plane may store and return rows of equal length in either layout."""
    lengths = [5, 5, 2, 5]
    columns = columns_of(lengths, input_ids=torch.int64, advantages=torch.float32)
    step = StepBatch(part, ids_of(lengths), columns)
    equal = step.meta.subset([0, 1, 3])
    dense = torch.stack(random_rows(torch.bfloat16, [(5,)] * 3))
    part.put(equal.sample_ids, prev_logprobs=dense)
    step.keep(equal, {"prev_logprobs": dense})
    fields = ["input_ids", "prev_logprobs", "advantages"]
    step.expect_padded(equal.sample_ids, fields, width=16, pads=PADS)
    step.expect_padded(ids_of(lengths), ["input_ids", "advantages"], width=16, pads=PADS)


@requirement("WIRE-02")
def test_a_shard_of_rows_without_tokens_is_padded_to_the_width(part: PartitionUnderTest) -> None:
    lengths = [0, 6, 0, 3]
    step = StepBatch(part, ids_of(lengths), columns_of(lengths, input_ids=torch.int64))
    step.expect_padded(["u0_g0", "u2_g0"], ["input_ids"], width=8, pads=PADS)


@requirement("WIRE-02")
def test_a_field_written_back_is_padded_to_the_width_of_the_step(part: PartitionUnderTest) -> None:
    rollout = rollout_batch(2, 4, seed=3)
    step = StepBatch(part, rollout.sample_ids, rollout.columns)
    for start in (0, 4):  # each rank at a different width
        shard = step.meta.slice(start, start + 4)
        step.write_back(shard, prev_logprobs=logprobs_for(shard.sequence_lengths, seed=start))
    fields = ["input_ids", "prev_logprobs"]
    for ids in (rollout.sample_ids[:4], rollout.sample_ids[4:], rollout.sample_ids):
        step.expect_padded(ids, fields, width=72, pads=PADS)


# -- WIRE-03: write-backs wider than their rows ----------------------------------------------------


@requirement("WIRE-03")
@pytest.mark.parametrize("multiple", [4, 64], ids=lambda multiple: f"rounded_to_{multiple}")
def test_a_wider_write_back_is_truncated_to_each_row(
    part: PartitionUnderTest, multiple: int
) -> None:
    rollout = rollout_batch(2, 4, seed=4, aborted=2)
    step = StepBatch(part, rollout.sample_ids, rollout.columns)
    step.write_back(step.meta, prev_logprobs=logprobs_for(rollout.lengths, multiple))
    fields = ["prev_logprobs", "input_ids"]
    step.expect_padded(rollout.sample_ids, fields, pads=PADS)
    part.expect_rows(
        rollout.sample_ids, prev_logprobs=step.rows(rollout.sample_ids, "prev_logprobs")
    )


@requirement("WIRE-03")
def test_write_backs_of_different_widths_are_read_as_one_batch(part: PartitionUnderTest) -> None:
    rollout = rollout_batch(3, 4, seed=5)
    step = StepBatch(part, rollout.sample_ids, rollout.columns)
    by_length = shortest_to_longest(rollout)
    for rank, multiple in enumerate((8, 16, 4)):
        shard = step.meta.subset(by_length[4 * rank : 4 * rank + 4])
        written = logprobs_for(shard.sequence_lengths, multiple, seed=rank)
        step.write_back(shard, prev_logprobs=written)
    step.expect_padded(rollout.sample_ids, ["prev_logprobs", "token_mask"], pads=PADS)


@requirement("WIRE-03")
def test_a_write_back_keeps_rows_without_tokens_empty(part: PartitionUnderTest) -> None:
    lengths = [0, 3, 0, 5]
    step = StepBatch(part, ids_of(lengths), columns_of(lengths, input_ids=torch.int64))
    step.write_back(step.meta, prev_logprobs=logprobs_for(lengths, 8))
    step.expect_padded(step.meta.sample_ids, ["prev_logprobs", "input_ids"], width=8, pads=PADS)


@requirement("WIRE-03")
def test_a_second_write_back_of_another_width_replaces_the_first(part: PartitionUnderTest) -> None:
    rollout = rollout_batch(2, 2, seed=6)
    step = StepBatch(part, rollout.sample_ids, rollout.columns)
    for version, multiple in enumerate((8, 64, 1)):
        written = logprobs_for(rollout.lengths, multiple, seed=version)
        step.write_back(step.meta, prev_logprobs=written)
        step.expect_padded(rollout.sample_ids, ["prev_logprobs"], pads=PADS)


# -- WIRE-04: fields that do not run over tokens ---------------------------------------------------


@requirement("WIRE-04")
@pytest.mark.parametrize(
    "shape",
    [(5, 4), (3, 4, 5), (1, 2, 3), (3, 1, 1), (2, 3, 4, 5)],
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_image_features_stay_rectangular(part: PartitionUnderTest, shape: tuple[int, ...]) -> None:
    """One shape has as many image rows as the longest row has tokens; other shapes have fewer."""
    lengths = [5, 0, 3, 1]
    pixels = torch.stack(random_rows(torch.bfloat16, [shape] * 4))
    columns = columns_of(lengths, input_ids=torch.int64) | {"pixel_values": pixels}
    step = StepBatch(part, ids_of(lengths), columns)
    fields = ["input_ids", "pixel_values"]
    step.expect_padded(step.meta.sample_ids, fields, width=8, pads=PADS)
    step.expect_padded(step.meta.sample_ids[::-2], ["pixel_values"])


@requirement("WIRE-04")
def test_a_rollout_with_images_comes_back(part: PartitionUnderTest) -> None:
    rollout = rollout_batch(2, 4, seed=7, image_shape=(3, 8, 8))
    step = StepBatch(part, rollout.sample_ids, rollout.columns)
    step.expect_padded(
        rollout.sample_ids[::-1], [*TOKENS, "pixel_values"], width=64, pads=rollout.pad_values
    )


@requirement("WIRE-04")
def test_patch_counts_are_independent_of_token_counts(part: PartitionUnderTest) -> None:
    """Rows have different numbers of patches; the reader pads to the largest number."""
    lengths, patches = [5, 1, 3], [2, 9, 0]
    rows = random_rows(torch.float32, [(count, 4) for count in patches])
    pixels = torch.nested.nested_tensor(rows, layout=torch.jagged)
    columns = columns_of(lengths, input_ids=torch.int64) | {"pixel_values": pixels}
    step = StepBatch(part, ids_of(lengths), columns)
    ids = step.meta.sample_ids
    batch = step.read(ids, ["input_ids", "pixel_values"], width=16, pads={"pixel_values": -1.0})
    expect_rows_by_id(batch, "pixel_values", ids, [padded(row, 9, -1.0) for row in rows])


# -- WIRE-06: message logs -------------------------------------------------------------------------


@requirement("WIRE-06")
@pytest.mark.parametrize("aborted", [0, 3], ids=["whole", "aborted"])
def test_message_logs_are_rebuilt_as_views_of_the_batch(
    part: PartitionUnderTest, target: Target, aborted: int
) -> None:
    rollout = rollout_batch(3, 4, seed=8, aborted=aborted)
    step = write_with_logs(part, target, rollout)
    for ids in (rollout.sample_ids, rollout.sample_ids[::-2]):
        expect_logs_rebuilt(step, rollout, ids)


@requirement("WIRE-06")
def test_message_logs_are_rebuilt_from_a_wider_batch(
    part: PartitionUnderTest, target: Target
) -> None:
    rollout = rollout_batch(2, 2, seed=9)
    step = write_with_logs(part, target, rollout)
    expect_logs_rebuilt(step, rollout, rollout.sample_ids, width=128)
