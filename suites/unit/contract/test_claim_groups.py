"""CLAIM-15: claims return whole groups, because the baseline is computed per group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect, expect_equal, is_rejected
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import claim_until_done, expect_once, expect_waiting
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.threads import BackgroundCall

IDS = [f"u{i // 2}_g{i % 2}" for i in range(6)]


@requirement("CLAIM-15", leans_on=("CLAIM-04",))
def test_whole_groups_are_claimed(new_partition: Callable[..., PartitionUnderTest]) -> None:
    part = new_partition(grpo_group_size=2)
    part.put_labeled([IDS[0], IDS[2], IDS[3]])
    expect_ids(part.claim("train", batch_size=2), IDS[2:4], "rows of the one whole group")
    part.put_labeled([IDS[1], IDS[4]])
    expect_ids(part.claim("train", batch_size=3), IDS[:2], "rows of the group made whole")


@requirement("CLAIM-15", leans_on=("CLAIM-04",))
@pytest.mark.parametrize(("size", "asked"), [(2, 3), (3, 4), (3, 5)])
def test_no_group_is_split_where_the_claim_is_full(
    new_partition: Callable[..., PartitionUnderTest], size: int, asked: int
) -> None:
    part = new_partition(grpo_group_size=size)
    groups = [[f"u{group}_g{row}" for row in range(size)] for group in range(2)]
    part.put_labeled([*groups[0], *groups[1]])
    first = part.claim("train", batch_size=asked).sample_ids
    expect(sorted(first) in groups, f"one of the groups {groups}, for {asked} rows", first)
    rest = part.claim("train", batch_size=asked).sample_ids
    expect_equal(sorted([*first, *rest]), [*groups[0], *groups[1]], "rows of both claims")


@requirement("CLAIM-15")
def test_a_blocking_claim_waits_for_the_whole_group(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(grpo_group_size=2)
    part.put_labeled([IDS[0], IDS[2]])
    waiting = BackgroundCall(lambda: part.claim(batch_size=2, blocking=True), "the blocked claim")
    expect_waiting(waiting, part, "a whole group", "an answer with two half groups ready")
    part.put_labeled([IDS[3]])
    expect_ids(waiting.result(part.timeouts.settle), IDS[2:4], "rows of the group made whole")


@requirement("CLAIM-15", leans_on=("CLAIM-04",))
def test_consumers_get_each_group_once_and_whole(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(grpo_group_size=2)
    put: list[str] = []

    def produce() -> None:
        for group in part.rounds(16):
            for row in range(2):
                part.put_labeled([f"u{group}_g{row}"])
                put.append(f"u{group}_g{row}")

    def claim() -> list[str]:
        return part.claim(batch_size=4).sample_ids

    producer = BackgroundCall(produce, "the producer")
    claims = claim_until_done(producer, [claim] * 3, 32, part.timeouts.check)
    producer.result(part.timeouts.operation)
    halves = [c for c in claims if set(Counter(i.partition("_")[0] for i in c).values()) != {2}]
    expect(not halves, "both rows of a group in one claim", halves[:3])
    expect_once(claims, put)


@requirement("CLAIM-15")
def test_a_group_is_whole_when_all_its_rows_are_ready(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(grpo_group_size=2)
    part.put_labeled(IDS[:2], "x")
    part.put_labeled(IDS[:1], "y")
    got = part.claim("train", ["x", "y"], 2).sample_ids
    expect_equal(got, [], "rows of a group of which one lacks a field")
    part.put_labeled(IDS[1:2], "y")
    expect_ids(part.claim("train", ["x", "y"], 2), IDS[:2], "rows of the group, both ready")


@requirement("CLAIM-15")
def test_a_group_that_another_task_has_claimed_is_whole_when_all_its_rows_are_ready(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(grpo_group_size=2)
    part.put_labeled(IDS[:2], "x")
    expect_ids(part.claim("prev_lp", ["x"], 2), IDS[:2], "rows of the group, both ready")
    part.put_labeled(IDS[:1], "y")
    got = part.claim("train", ["x", "y"], 2).sample_ids
    expect_equal(got, [], "rows that lack a field, of a group that another task has claimed")


@requirement("CLAIM-15", leans_on=("CLAIM-04", "TAG-06"))
def test_a_group_that_arrives_row_by_row_is_claimed_with_each_rows_own_tags(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    """The rows become ready in another order than they were put, and somebody polls meanwhile."""
    part, ids = new_partition(grpo_group_size=4), [f"u_g{row}" for row in range(4)]
    lengths = {sample_id: 10 + n for n, sample_id in enumerate(ids)}
    tags = [{"input_lengths": length, "row": i} for i, length in lengths.items()]
    part.put_labeled(ids, "x", tags=tags)
    for sample_id in (ids[2], ids[0], ids[3], ids[1]):
        got = part.claim("train", ["x", "y"], 4).sample_ids
        expect_equal(got, [], "rows of a group of which some lack a field")
        part.put_labeled([sample_id], "y")
    meta = part.claim("train", ["x", "y"], 4)
    expect_ids(meta, ids, "rows of the group, all ready")
    in_order = [lengths[sample_id] for sample_id in meta.sample_ids]
    expect_equal(meta.sequence_lengths, in_order, f"sequence_lengths of {meta.sample_ids}")
    rows = [tag.get("row") for tag in meta.tags or []]
    expect_equal(rows, list(meta.sample_ids), "the tags of the rows, in their order")


@requirement("CLAIM-15", leans_on=("CLAIM-04",))
def test_a_row_of_a_group_that_is_put_again_counts_once(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    """Planes that count the rows of a group as they arrive count a replaced one twice."""
    part = new_partition(grpo_group_size=3)
    put = [f"u_g{row}" for row in range(3)]
    part.put_labeled(put[:2])
    for again in range(3):
        got = part.claim("train", batch_size=3).sample_ids
        expect_equal(got, [], "rows of a group that has two of its three rows")
        if again < 2:
            part.clear([put[again]])
        part.put_labeled(put[:2], version=again)
    part.put_labeled(put[2:])
    expect_ids(part.claim("train", batch_size=3), put, "rows of the group made whole")


@requirement("CLAIM-15")
def test_groups_stay_whole_after_some_of_their_rows_were_cleared(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(grpo_group_size=2)
    part.put_labeled(IDS)
    part.clear([IDS[1], IDS[2]])  # leaves two adjacent half groups of two prompts
    expect_ids(part.claim("train", batch_size=2), IDS[4:], "rows of the one group still whole")
    expect_equal(part.claim("train", batch_size=2).sample_ids, [], "rows of two half groups")
    part.put_labeled([IDS[2]])  # may reuse the slot of the other prompt's row
    expect_ids(part.claim("train", batch_size=2), IDS[2:4], "rows of the group made whole again")
    expect_equal(part.claim("train", batch_size=2).sample_ids, [], "rows of the half group")


@requirement("CLAIM-15")
def test_a_group_is_identified_by_its_whole_uid(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(grpo_group_size=2)
    part.put_labeled(["step3_p0_g0", "step3_p1_g1"])
    expect_equal(part.claim("train", batch_size=2).sample_ids, [], "rows of two half groups")
    part.put_labeled(["step3_p0_g1"])
    group = ["step3_p0_g0", "step3_p0_g1"]
    expect_ids(part.claim("train", batch_size=2), group, "rows of the one whole group")


@requirement("CLAIM-15", leans_on=("CLAIM-04",), scattered=False)
@pytest.mark.parametrize("size", [16, 128])
def test_groups_of_many_generations_are_claimed_whole(
    new_partition: Callable[..., PartitionUnderTest], size: int
) -> None:
    """Planes that cut a number of one digit off an id take the tenth generation for another uid."""
    part = new_partition(grpo_group_size=size, num_samples=2 * size)
    groups = [[f"u{group}_g{row}" for row in range(size)] for group in range(2)]
    part.put_labeled([*groups[0][1:], *groups[1]])
    expect_ids(part.claim("train", batch_size=size), groups[1], "rows of the one whole group")
    part.put_labeled(groups[0][:1])
    expect_ids(part.claim("train", batch_size=size), groups[0], "rows of the group made whole")


#: Uids whose prompts hold what separates a prompt from the number of its sample.
ODD_UIDS = {
    "separator": ["a_g1_b", "a_g1_c"],
    "separator_and_number": ["a_g0", "a_g1"],
    "longer": ["p_1", "p_11"],
    "only_case": ["p", "P"],
}


@requirement("CLAIM-15", leans_on=("CLAIM-04",))
@pytest.mark.parametrize("prompts", ODD_UIDS.values(), ids=ODD_UIDS)
def test_prompts_of_alike_uids_are_groups_of_their_own(
    new_partition: Callable[..., PartitionUnderTest], prompts: list[str]
) -> None:
    part = new_partition(grpo_group_size=2)
    part.put_labeled([f"{prompts[0]}_g0", f"{prompts[1]}_g1"])
    expect_equal(part.claim("train", batch_size=2).sample_ids, [], "rows of two half groups")
    part.put_labeled([f"{prompts[0]}_g1", f"{prompts[1]}_g0"])
    for _ in prompts:
        got = part.claim("train", batch_size=2).sample_ids
        stems = {sample_id.rpartition("_g")[0] for sample_id in got}
        expect(len(got) == 2 and len(stems) == 1, "both rows of one prompt", got)


#: Prompts of a large step: among them are some whose ids agree in the first digits of any hash.
MANY_PROMPTS = 600


@requirement("CLAIM-15", leans_on=("CLAIM-04",))
def test_groups_of_many_prompts_are_put_generation_by_generation(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(grpo_group_size=2, num_samples=2 * MANY_PROMPTS)
    for generation in range(2):
        ids = [f"prompt-{prompt}_g{generation}" for prompt in range(MANY_PROMPTS)]
        part.put(ids, x=torch.arange(MANY_PROMPTS))
    seen: Counter[str] = Counter()
    for _ in range(MANY_PROMPTS // 10):
        claimed = part.claim(batch_size=20).sample_ids
        rows = Counter(sample_id.rpartition("_g")[0] for sample_id in claimed)
        torn = sorted(prompt for prompt, count in rows.items() if count != 2)
        expect(not torn, "both rows of each prompt in one claim", f"one row of {torn[:3]}")
        seen.update(rows)
    expect_equal(len(seen), MANY_PROMPTS, "prompts claimed")


@requirement("CLAIM-15", leans_on=("CLAIM-02", "CLAIM-04"))
@pytest.mark.parametrize("cleared", [False, True], ids=["first_kept", "first_cleared"])
def test_a_second_group_of_a_prompt_is_claimed_whole(
    new_partition: Callable[..., PartitionUnderTest], cleared: bool
) -> None:
    """Planes that take a prompt for done after its first group never return the second."""
    part = new_partition(grpo_group_size=2)
    first, second = ["p0_g0", "p0_g1"], ["p0_g2", "p0_g3"]
    part.put_labeled(first)
    expect_ids(part.claim("train", batch_size=2), first, "rows of the prompt's first group")
    if cleared:
        part.clear(first)
    part.put_labeled(second[:1])
    got = part.claim("train", batch_size=2).sample_ids
    expect_equal(got, [], "rows beside one row of the prompt's second group")
    part.put_labeled(second[1:])
    expect_ids(part.claim("train", batch_size=2), second, "rows of the prompt's second group")
    both = second if cleared else [*first, *second]
    expect_ids(part.claim("prev_lp", batch_size=4), both, "rows of the prompt for another task")


@requirement("CLAIM-15", leans_on=("CLAIM-04",))
def test_groups_are_claimed_whole_after_a_clear_of_everything(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(grpo_group_size=2)
    part.put_labeled(["u_g0", "u_g1"])
    expect_ids(part.claim(batch_size=2), ["u_g0", "u_g1"], "the first group")
    part.clear(None)
    if is_rejected(lambda: part.put_labeled(["v_g0"])):
        return  # clearing everything may end the registration
    half = part.claim(batch_size=2).sample_ids
    expect(not half, "no claim of half a group", half)
    part.put_labeled(["v_g1"])
    expect_ids(part.claim(batch_size=2), ["v_g0", "v_g1"], "the next group")


@requirement("CLAIM-15", leans_on=("CLAIM-04", "REG-08"))
def test_a_refused_registration_changes_no_group(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(grpo_group_size=4)
    group = [f"u_g{row}" for row in range(4)]
    part.put_labeled(group)
    if not is_rejected(lambda: part.register(grpo_group_size=2)):
        return  # the schema may be replaced
    early = part.claim("train", batch_size=2).sample_ids
    expect_equal(early, [], "rows of a claim of two, as groups have four")
    part.put_labeled([f"v_g{row}" for row in range(3)])
    expect_ids(part.claim("train", batch_size=4), group, "rows of the whole group")
    expect_equal(part.claim("train").sample_ids, [], "rows of the group that lacks one")


@requirement("CLAIM-15", leans_on=("CLAIM-04", "CLEAR-04"))
@pytest.mark.parametrize("put_again", [[1], [0, 2]], ids=["one_row", "two_rows"])
def test_rows_of_a_claimed_group_that_are_put_again_are_no_group(
    new_partition: Callable[..., PartitionUnderTest], put_again: list[int]
) -> None:
    """Planes that count the rows of a group, but not those claimed, return the new ones alone."""
    part = new_partition(grpo_group_size=3)
    groups = [[f"u{group}_g{row}" for row in range(3)] for group in range(2)]
    part.put_labeled(groups[0])
    expect_ids(part.claim("train", batch_size=3), groups[0], "rows of the first group")
    again = [groups[0][row] for row in put_again]
    part.clear(again)
    part.put_labeled(again, version=1)
    part.put_labeled(groups[1])
    expect_ids(part.claim("train", batch_size=6), groups[1], "rows of the whole group")
    expect_ids(part.claim("prev_lp", batch_size=6), [*groups[0], *groups[1]], "another task's rows")
