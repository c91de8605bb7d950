"""Errors by whose type a trainer decides whether to try again, to drop the problem, or to stop.

They have one message as their only positional argument, so they survive pickling between Ray
actors.
"""

from __future__ import annotations

from rlconform.events.schema import RewardFailureCause


class ModelFailure(RuntimeError):
    """The model wrote no token, or its logits or logprobs are NaN or infinite."""


class DataFailure(ValueError):
    """A problem can't be used, because it leaves no room for a response."""


class TornWeights(RuntimeError):
    """The policy and the rollout workers don't hold the same weights after a refit."""


class WorkerLost(RuntimeError):
    """An actor of the run died, or did not answer in time."""


class WorkerDied(WorkerLost):
    """An actor of the run died."""


class ServersLost(WorkerLost):
    """No server that generates has taken the new weights, so none can go on."""


class RewardFailure(RuntimeError):
    """A row has no reward: its scorer raised, was too late, or gave a reward that isn't finite."""

    def __init__(
        self, message: str, *, cause: RewardFailureCause = RewardFailureCause.RAISED
    ) -> None:
        super().__init__(message)
        self.failure_cause = cause  # ``cause`` is a name of Ray's, for errors of its tasks


class TooFewRewards(RuntimeError):
    """So many rows of a group have no reward that the others have nothing to be compared with."""


class RankFailed(RuntimeError):
    """Another rank failed, so this rank has not begun a pass in which it would wait for it."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error of Ray's, whose others list pids, addresses and guesses."""
    return str(error).partition("\n")[0]
