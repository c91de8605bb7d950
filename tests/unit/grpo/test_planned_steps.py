"""The steps of a run: by its limit, by its epochs, and declared only if nothing else ends it."""

from __future__ import annotations

import pytest

from rlconform.grpo.config import load_config
from rlconform.grpo.event_log import declared_run
from rlconform.grpo.planned_steps import declared_steps, last_step

EPOCHS = ("grpo.max_num_epochs=2",)
STOPS = (
    "grpo.stop_at_validation_metric=accuracy",
    "grpo.stop_at_validation_threshold=0.9",
    "grpo.val_period=2",
)
SAMPLING = ("grpo.use_dynamic_sampling=true",)


@pytest.mark.parametrize(
    ("overrides", "problems", "last", "declared"),
    [
        ((), 10, 20, 20),
        (EPOCHS, None, 20, 20),
        (EPOCHS, 10, 5, 5),  # 20 problems of two epochs, 4 a step
        (EPOCHS, 11, 5, 5),
        (EPOCHS, 1000, 20, 20),
        (STOPS, 10, 20, None),
        (SAMPLING, 10, 20, 20),
        ((*SAMPLING, *EPOCHS), 10, 5, None),
    ],
)
def test_steps_of_a_run(
    overrides: tuple[str, ...], problems: int | None, last: int, declared: int | None
) -> None:
    base = ("grpo.max_num_steps=20", "grpo.num_prompts_per_step=4", "grpo.max_num_epochs=null")
    config = load_config("tiny_llama_copy", [*base, *overrides]).grpo
    assert last_step(config, problems, 4) == last
    assert declared_steps(config, problems, 4) == declared


@pytest.mark.parametrize("name", ["tiny_llama_copy", "tiny_llama_copy_async"])
def test_both_trainers_declare_their_steps_and_the_sync_after_the_last_one(name: str) -> None:
    run = declared_run(load_config(name, ["grpo.max_num_steps=3"]), plane=True, problems=None)
    assert (run.steps, run.final_sync) == (3, True)
