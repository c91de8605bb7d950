"""How many steps a run makes: what its trainer ends at, and what its event log declares."""

from __future__ import annotations

from rlconform.grpo.config.algorithm import GRPOConfig


def last_step(config: GRPOConfig, problems: int | None, prompts: int) -> int:
    """Return the number of a run's last step, of which each takes ``prompts``.

    ``problems`` is the size of an epoch, if it has one. The last problems of the last epoch are
    left out if they are too few for a step.
    """
    if problems is None or config.max_num_epochs is None:
        return config.max_num_steps
    return min(config.max_num_steps, problems * config.max_num_epochs // prompts)


def declared_steps(config: GRPOConfig, problems: int | None, prompts: int) -> int | None:
    """Return the steps of a run that completes; None if only the run itself can show them.

    That is so if a validation may end it, or if its problems may: dynamic sampling takes as many
    for a step as it needs.
    """
    epochs = problems is not None and config.max_num_epochs is not None
    if config.stop_at_validation_metric is not None or (epochs and config.use_dynamic_sampling):
        return None
    return last_step(config, problems, prompts)
