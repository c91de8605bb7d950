"""``BatchRunner``: what runs the batches of a ``BatchingExecutor``, and the errors of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)


class BatchingError(RuntimeError):
    """Base class of the errors of ``BatchingExecutor``."""


class ExecutorClosed(BatchingError):
    """The executor was closed before the request had a place in the queue."""


class RequestFailed(BatchingError):
    """The runner raised for this request alone, or was lost again; ``__cause__`` is its error."""


class WrongAnswers(BatchingError):
    """A runner returned too few or too many answers, or an answer to another request."""


class RunnerLost(BatchingError):
    """A runner raises it to say that it can't run any batch again."""


class NoRunnerLeft(BatchingError):
    """All runners are lost; no request will ever be answered."""


class BatchRunner(Protocol[Q_contra, A_co]):
    """Runs batches, one or several at a time."""

    async def __call__(self, requests: Sequence[Q_contra], /) -> Sequence[A_co]:
        """Answer a batch, in order; ``RunnerLost`` if it can run neither this one nor another."""
