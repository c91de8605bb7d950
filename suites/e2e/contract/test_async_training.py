"""ASYNC: asynchronous training runs through the plane, on policy and one step off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlconform.certify.plugin.markers import requirement

if TYPE_CHECKING:  # checks are collected without transformers
    from rlconform.certify.scenarios.training_async import AsyncRuns

#: Seconds for two short runs and, the first time, the start of their actors, on a busy laptop.
PATIENCE_S = 300


@requirement("ASYNC-01", patience=PATIENCE_S)
def test_an_on_policy_run_equals_the_synchronous_run(async_runs: AsyncRuns) -> None:
    async_runs.expect_equal_on_policy()


@requirement("ASYNC-02", patience=PATIENCE_S)
def test_each_group_of_an_off_policy_run_is_trained_on_once(async_runs: AsyncRuns) -> None:
    async_runs.expect_witnessed_off_policy()
