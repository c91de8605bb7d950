"""Errors of the replay buffer and of its checkpoints."""

from __future__ import annotations


class ReplayBufferError(RuntimeError):
    """Base class of the buffer's errors."""


class BufferFull(ReplayBufferError):
    """All slots are in use."""


class DuplicateGroup(ReplayBufferError):
    """The group id was used before; ids are unique in a run."""


class UnknownGroup(ReplayBufferError, KeyError):
    """The group is not in the buffer, or not in the state that the call needs."""


class RestoreError(ReplayBufferError, ValueError):
    """A checkpoint does not fit the run's configuration, or is incomplete."""


class TornGroupRecord(ReplayBufferError, ValueError):
    """A committed group lacks rows, has foreign ones, or has no weight version."""
