"""``RewardOutcome``: the reward of a row, or why it has none; ``checked`` decides from an answer.

A reward that is not finite, or that belongs to another row, is worse than none: the update would be
made from it, and nothing would show. So each answer is checked before anything reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

import numpy as np
from torch import Tensor

from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.failures import RewardFailure
from rlconform.grpo.rewards.base import Reward, RewardRequest

#: Characters of an error that are kept.
_LONGEST_ERROR = 500


@dataclass(frozen=True)
class FailedReward:
    """Why a row has no reward."""

    cause: RewardFailureCause
    error: str

    @classmethod
    def of(cls, error: BaseException) -> FailedReward:
        """Return the failure that an exception of a scorer is."""
        if isinstance(error, RewardFailure):
            return cls(error.failure_cause, str(error)[:_LONGEST_ERROR])
        text = f"the scorer raised {type(error).__name__}: {error}"
        return cls(RewardFailureCause.RAISED, text[:_LONGEST_ERROR])


RewardOutcome = Reward | FailedReward


def checked(answer: object, request: RewardRequest) -> Reward:
    """Return the answer to a request with plain numbers, or raise ``RewardFailure``.

    The answer must be a ``Reward`` of the request's row and attempt, finite in all parts, with one
    turn value per turn or none, and with extra values that JSON can hold.
    """
    if not isinstance(answer, Reward):
        raise malformed(f"expected a Reward of {request.sample_id!r}; got {answer!r}")
    if (answer.sample_id, answer.attempt) != (request.sample_id, request.attempt):
        raise RewardFailure(
            f"expected the reward of {request.sample_id!r}, attempt {request.attempt}; got that of "
            f"{answer.sample_id!r}, attempt {answer.attempt}",
            cause=RewardFailureCause.WRONG_ROW,
        )
    if len(answer.turn_values) not in {0, len(request.turns)}:
        raise malformed(
            f"expected a turn value for each of the {len(request.turns)} turns of "
            f"{request.sample_id!r}, or none; got {len(answer.turn_values)}"
        )
    return replace(
        answer,
        value=finite(answer.value, "the reward", request),
        components={
            str(name): finite(part, f"component {name!r}", request)
            for name, part in answer.components.items()
        },
        turn_values=tuple(
            finite(value, f"the value of turn {turn}", request)
            for turn, value in enumerate(answer.turn_values)
        ),
        extra={str(key): plain(value, str(key), request) for key, value in answer.extra.items()},
    )


def finite(value: object, name: str, request: RewardRequest) -> float:
    """Return a number, also one of numpy or torch, as a finite float; else ``RewardFailure``."""
    number = _scalar(value)
    if not isinstance(number, int | float):
        raise malformed(f"expected {name} of {request.sample_id!r} as a number; got {value!r}")
    try:
        number = float(number)
    except OverflowError:  # an int beyond the range of floats
        number = inf
    if not isfinite(number):
        raise RewardFailure(
            f"expected {name} of {request.sample_id!r} to be finite; got {number}",
            cause=RewardFailureCause.NOT_FINITE,
        )
    return number


def plain(value: object, key: str, request: RewardRequest) -> Any:
    """Return a value as JSON has it; ``RewardFailure`` if JSON can't hold it."""
    value = _scalar(value)
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [plain(one, key, request) for one in value]
        case Mapping():
            return {str(name): plain(one, key, request) for name, one in value.items()}
        case _:
            raise malformed(
                f"expected a value that JSON can hold as {key!r} of {request.sample_id!r}; got "
                f"{type(value).__name__}"
            )


def malformed(message: str) -> RewardFailure:
    """Return the failure of an answer that is not of the shape that was agreed on."""
    return RewardFailure(message, cause=RewardFailureCause.MALFORMED)


def _scalar(value: object) -> object:
    """Return the number in an array or a tensor of one element, and anything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | Tensor):
        elements = value.numel() if isinstance(value, Tensor) else value.size
        return value.item() if elements == 1 else value
    return value
