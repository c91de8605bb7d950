"""Pure decisions of asynchronous training: staleness, gates, orders, budgets, stalls."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rlconform.grpo.config.async_rl import RolloutFailureConfig
from rlconform.grpo.replay.budget import (
    StepTooSmall,
    TooManySkippedPrompts,
    check_skips,
    check_step_size,
    retry_delay,
)
from rlconform.grpo.replay.samplers import admits, freshest_first, oldest_first
from rlconform.grpo.replay.slots import Failure
from rlconform.grpo.replay.versions import (
    GroupVersions,
    MissingVersion,
    WrongVersionOrder,
    staleness,
    staleness_metrics,
)
from rlconform.grpo.trainers.stall_watchdog import RunView, describe_stall

INFRA, DATA, STALE, REWARD = Failure.INFRA, Failure.DATA, Failure.STALE, Failure.REWARD


def test_staleness_is_divided_into_in_flight_and_in_queue() -> None:
    assert staleness(GroupVersions(0, 2, 3, 7)) == (5, 1, 4)
    assert staleness(GroupVersions(4, 4, 4, 4)) == (0, 0, 0)


@pytest.mark.parametrize("name", ["dispatch", "start", "end", "consumed"])
def test_a_missing_version_is_an_error_and_never_0(name: str) -> None:
    with pytest.raises(MissingVersion, match=name):
        staleness(
            GroupVersions(**{"dispatch": 0, "start": 0, "end": 0, "consumed": 0} | {name: None})
        )


@pytest.mark.parametrize("versions", [(1, 0, 0, 1), (0, 2, 1, 3), (0, 1, 3, 2), (-1, 0, 0, 0)])
def test_versions_out_of_order_are_an_error(versions: tuple[int, int, int, int]) -> None:
    with pytest.raises(WrongVersionOrder):
        staleness(GroupVersions(*versions))


def test_the_histogram_counts_each_definition() -> None:
    metrics = staleness_metrics([GroupVersions(0, 1, 1, 2), GroupVersions(1, 2, 2, 2)])
    assert metrics == {
        "staleness/total/0": 1, "staleness/total/1": 1, "staleness/total/max": 1,
        "staleness/in_flight/0": 2, "staleness/in_flight/max": 0,
        "staleness/in_queue/0": 1, "staleness/in_queue/1": 1, "staleness/in_queue/max": 1,
        "staleness/dispatch/1": 1, "staleness/dispatch/2": 1, "staleness/dispatch/max": 2,
    }  # fmt: skip


def test_the_gate_opens_window_steps_ahead() -> None:
    assert [admits(index, trainer_version=3, window=1) for index in (3, 4, 5)] == [
        True,
        True,
        False,
    ]


def test_groups_are_taken_from_several_versions() -> None:
    ready = [(2, 5), (0, 2), (1, 1)]
    assert oldest_first(ready, 4) == [(0, 2), (1, 1), (2, 1)]
    assert freshest_first(ready, 6) == [(2, 5), (1, 1)]
    assert oldest_first([], 4) == []


@pytest.mark.parametrize(
    ("failures", "delay"),
    [
        ([INFRA], 1.0),
        ([INFRA, INFRA, INFRA], 4.0),
        ([INFRA] * 4, 5.0),  # max_backoff_s
        ([DATA], 0.0),
        ([INFRA, DATA, INFRA], 2.0),  # each class has a budget of its own
        ([DATA, INFRA, DATA], None),
        ([INFRA] * 5, None),
        ([STALE] * 4, 0.0),
        ([REWARD], 1.0),  # what gives the rewards may be back soon
        ([INFRA, REWARD, INFRA, REWARD], None),
    ],
)
def test_retries_within_the_budget_of_the_class(failures: list[Failure], delay: float) -> None:
    assert retry_delay(failures, RolloutFailureConfig(max_backoff_s=5.0)) == delay


def test_too_many_skips_end_the_run_and_name_the_last_error() -> None:
    options = RolloutFailureConfig(max_skipped_prompts=2, max_consecutive_dropped_prompts=1)
    check_skips(Counter({INFRA: 1, DATA: 1}), 1, "why", options)
    with pytest.raises(TooManySkippedPrompts, match=r"3 prompts.*why"):
        check_skips(Counter({INFRA: 2, DATA: 1}), 1, "why", options)
    with pytest.raises(TooManySkippedPrompts, match="2 prompts in a row"):
        check_skips(Counter({INFRA: 2}), 2, "why", options)


def test_a_step_keeps_its_fraction() -> None:
    options = RolloutFailureConfig(min_step_batch_fraction=0.75)
    check_step_size(6, 8, 3, options)
    with pytest.raises(StepTooSmall, match="5 of 8"):
        check_step_size(5, 8, 3, options)


VIEW: dict[str, Any] = {
    "version": 3, "stage": "waits for groups", "step_groups": 1, "step_wanted": 8,
    "slots": {"ready": 0}, "capacity": 16, "generating": (), "queued": 0, "paused": False,
    "all_dispatched": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "nothing is in flight; the sampler admits no further prompts"),
        ({"slots": {"ready": 9}}, "9 groups are ready and nobody takes them"),
        ({"generating": ("a", "b", "c", "d")}, "4 groups are being generated: a, b, c and 1 more"),
        ({"queued": 2, "paused": True}, "2 prompts wait for an attempt: dispatch is paused"),
        ({"queued": 2, "slots": {"trained": 16}}, "16 of 16 slots are used"),
        ({"all_dispatched": True}, "all prompts of the run are dispatched"),
        ({}, "the trainer waits for groups, with 1 of 8 groups of its step"),
    ],
)
def test_the_watchdog_names_what_waits(changes: dict[str, Any], said: str) -> None:
    assert said in describe_stall(RunView(**VIEW | changes), 600)
