"""TAG-01, TAG-06: claims report the lengths of their rows; numbers in tags keep every bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import (
    expect,
    expect_equal,
    leaning_on,
    same_object,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_step import STEP_IDS, first_wrong
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import BatchMeta

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("TAG-06")
@pytest.mark.parametrize("known", [0, 2, 3])
def test_lengths_are_reported_only_when_every_row_has_one(
    part: PartitionUnderTest, known: int
) -> None:
    lengths = {i: 10 * n for n, i in enumerate(IDS)}  # 0: an aborted rollout without tokens
    tags = [{"input_lengths": lengths[i]} if n < known else {"other": 1} for n, i in enumerate(IDS)]
    part.put_labeled(IDS, tags=tags)
    meta = part.claim("train")
    if known < len(IDS):
        expect_equal(meta.sequence_lengths, None, "sequence_lengths where a row has none")
    else:
        expect(meta.sequence_lengths is not None, "sequence_lengths", "None")
        got = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=True))
        expect_equal(got, lengths, "sequence_lengths by id")


@requirement("TAG-06")
def test_lengths_agree_with_the_tags_of_the_same_claim(part: PartitionUnderTest) -> None:
    def expect_lengths_of_tags(meta: BatchMeta, when: str) -> None:
        tags = meta.tags or [{} for _ in meta.sample_ids]
        known = [row.get("input_lengths") for row in tags]
        if known:  # other checks cover a claim without rows
            expected = None if None in known else known
            with leaning_on(*(["TAG-01"] if meta.tags is None else [])):
                expect_equal(meta.sequence_lengths, expected, f"sequence_lengths {when}")

    part.put_labeled(IDS, tags=[{"input_lengths": 10 + n} for n, _ in enumerate(IDS)])
    expect_lengths_of_tags(part.claim("train"), "as first put")
    part.put(IDS, [{"input_lengths": 20 + n} for n, _ in enumerate(IDS)])
    expect_lengths_of_tags(part.claim("prev_lp"), "after new tags were put")
    part.clear(IDS)
    part.put_labeled(IDS, version=1)
    expect_lengths_of_tags(part.claim("train"), "of rows put again without lengths")


@requirement("TAG-06")
def test_rows_of_a_large_step_have_their_own_lengths(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=len(STEP_IDS))
    lengths = {sample_id: 7 * n % 8192 for n, sample_id in enumerate(STEP_IDS)}
    tags = [{"input_lengths": length} for length in lengths.values()]
    part.put(STEP_IDS, tags, x=torch.arange(len(STEP_IDS)))
    meta = part.claim(batch_size=len(STEP_IDS))
    got = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=False))
    wrong = [i for i in STEP_IDS if got.get(i) != lengths[i]]
    expect(not wrong, f"its own length for each of {len(STEP_IDS)} rows", first_wrong(wrong, got))


#: Numbers around which a narrower integer or a float stops being exact.
EDGES = [edge + step for edge in (2**15, 2**16, 2**31, 2**32, 2**53) for step in (-1, 0, 1)]


@requirement("TAG-06")
def test_lengths_keep_every_bit(part: PartitionUnderTest) -> None:
    ids = [f"r{n}" for n in range(len(EDGES))]
    part.put_labeled(ids, tags=[{"input_lengths": edge} for edge in EDGES])
    meta = part.claim("train")
    got = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=False))
    expect_equal(got, dict(zip(ids, EDGES, strict=True)), "sequence_lengths by id")


@requirement("TAG-01")
def test_numbers_in_tags_keep_every_bit(part: PartitionUnderTest) -> None:
    ids = [f"r{n}" for n in range(len(EDGES))]
    tags = [{"int": edge, "negative": -edge, "float": float(edge)} for edge in EDGES]
    part.put_labeled(ids, tags=tags)
    got = tags_by_id(part.claim("train"))
    for sample_id, row in zip(ids, tags, strict=True):
        expect(same_object(got.get(sample_id), row), f"{sample_id} to carry {row}", got[sample_id])


@requirement("TAG-06")
def test_lengths_follow_tags_that_were_put_alone(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, tags=[{"input_lengths": 10 + n} for n, _ in enumerate(IDS)])
    part.put(IDS[:2], [{"input_lengths": 20}, {"input_lengths": 21}])
    meta = part.claim("train")
    got = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=True))
    expect_equal(got, dict(zip(IDS, [20, 21, 12], strict=True)), "sequence_lengths by id")
