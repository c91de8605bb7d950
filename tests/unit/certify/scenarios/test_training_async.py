"""``expect_witnessed`` accepts a step whose rows were each trained on once, and no other."""

from __future__ import annotations

import pytest
import torch

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.scenarios.training_async import expect_witnessed
from rlconform.grpo.trainers.base import StepResult

ROWS = ["a_g0", "a_g1", "b_g0", "b_g1"]
#: The advantages of ``b`` are 0.
RESULT = StepResult(ROWS, torch.tensor([[1.0, 1.0], [0.0, -1.0], [0.0, 0.0], [0.0, 0.0]]), {})
ONCE = {"a_g0": 1, "a_g1": 1}


def test_rows_without_advantages_may_give_no_gradient() -> None:
    expect_witnessed(1, RESULT, ONCE, {"b_g0", "b_g1"})
    expect_witnessed(1, RESULT, {**ONCE, "b_g0": 1}, {"b_g1"})


@pytest.mark.parametrize(
    ("passes", "without", "text"),
    [
        (ONCE, {"b_g0"}, "each row of step 1 once"),
        ({**ONCE, "c_g0": 1}, {"b_g0", "b_g1"}, "each row of step 1 once"),
        ({**ONCE, "a_g1": 2}, {"b_g0", "b_g1"}, "one pass of each row"),
        ({"a_g0": 1}, {"a_g1", "b_g0", "b_g1"}, "a gradient of each row"),
    ],
    ids=["lost", "foreign", "twice", "no_gradient"],
)
def test_other_steps_are_violations(passes: dict[str, int], without: set[str], text: str) -> None:
    with pytest.raises(ContractViolation, match=text):
        expect_witnessed(1, RESULT, passes, without)


def test_a_row_that_a_step_names_twice_is_a_violation() -> None:
    twice = StepResult([*ROWS, "a_g0"], torch.ones(5, 2), {})
    with pytest.raises(ContractViolation, match="once in the gradients"):
        expect_witnessed(1, twice, dict.fromkeys(ROWS, 1), set())
