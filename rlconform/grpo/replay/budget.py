"""Decides whether a prompt whose group was not trained on gets another attempt, or is skipped.

    attempt failed ── retry_delay ──▶ seconds, or None: skipped      within the budget of its class
    prompt skipped ── check_skips ────▶ raises when the run has skipped too many

Each class of failure has a budget of its own, since it says something else: a lost actor may be
back soon, a prompt that the task refuses will be refused again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlconform.grpo.config.async_rl import RolloutFailureConfig
from rlconform.grpo.replay.slots import DropReason, Failure

#: The failure that a drop is, where the prompt is due another attempt.
FAILURE_OF = {
    DropReason.INFRA_FAILURE: Failure.INFRA,
    DropReason.DATA_FAILURE: Failure.DATA,
    DropReason.MODEL_FAILURE: Failure.MODEL,
    DropReason.REWARD_FAILURE: Failure.REWARD,
    DropReason.STALE: Failure.STALE,
    DropReason.ABORTED_STALE: Failure.STALE,
    DropReason.ABORTED_SYNC: Failure.STALE,
    DropReason.OVERLOAD: Failure.INFRA,
}
#: The reason under which a failed attempt is dropped.
REASON_OF = {
    Failure.INFRA: DropReason.INFRA_FAILURE,
    Failure.DATA: DropReason.DATA_FAILURE,
    Failure.MODEL: DropReason.MODEL_FAILURE,
    Failure.REWARD: DropReason.REWARD_FAILURE,
    Failure.STALE: DropReason.STALE,
}


class TooManySkippedPrompts(RuntimeError):
    """More prompts have no attempts left than ``rollout_failure`` allows."""


class StepTooSmall(RuntimeError):
    """So many of a step's prompts were skipped that the step is not worth training."""


def attempts_allowed(failure: Failure, options: RolloutFailureConfig) -> int:
    """Return the number of attempts that a prompt has with failures of this class."""
    return {
        Failure.INFRA: options.max_infra_attempts_per_prompt,
        Failure.DATA: options.max_data_attempts_per_prompt,
        Failure.MODEL: options.max_model_attempts_per_prompt,
        Failure.REWARD: options.max_reward_attempts_per_prompt,
        Failure.STALE: options.max_stale_attempts_per_prompt,
    }[failure]


def retry_delay(failures: Sequence[Failure], options: RolloutFailureConfig) -> float | None:
    """Return the seconds before the next attempt, or None if the prompt has none left.

    ``failures`` are the prompt's, the last one included. Only infrastructure and what gives the
    rewards get time to recover; the delay doubles with each of their failures.
    """
    last = failures[-1]
    count = failures.count(last)
    if count >= attempts_allowed(last, options):
        return None
    if last not in {Failure.INFRA, Failure.REWARD}:
        return 0.0
    return min(options.backoff_base_s * 2.0 ** (count - 1), options.max_backoff_s)


def check_skips(
    skipped: Counter[Failure], consecutive: int, last: str, options: RolloutFailureConfig
) -> None:
    """Raise ``TooManySkippedPrompts`` if the run has skipped more prompts than it may.

    ``last`` is the error of the prompt skipped last, for the message.
    """
    total = skipped.total()
    by_class = ", ".join(f"{n} {failure.value}" for failure, n in skipped.items())
    if total > options.max_skipped_prompts:
        raise TooManySkippedPrompts(
            f"{total} prompts have no attempts left ({by_class}), and rollout_failure."
            f"max_skipped_prompts is {options.max_skipped_prompts}; the last failed with: {last}"
        )
    most = options.max_consecutive_dropped_prompts
    if most and consecutive > most:
        raise TooManySkippedPrompts(
            f"{consecutive} prompts in a row have no attempts left ({by_class}), and "
            f"rollout_failure.max_consecutive_dropped_prompts is {most}; the last failed with: "
            f"{last}"
        )


def check_step_size(groups: int, prompts: int, step: int, options: RolloutFailureConfig) -> None:
    """Raise ``StepTooSmall`` if a step would train on too few of its prompts."""
    if groups < options.min_step_batch_fraction * prompts:
        raise StepTooSmall(
            f"step {step} has {groups} of {prompts} prompts left, and rollout_failure."
            f"min_step_batch_fraction is {options.min_step_batch_fraction:g}"
        )
