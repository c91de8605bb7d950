"""The exit codes of the ``rlconform`` command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of all commands; the help of each says what they mean there."""

    SUCCESS = 0  # certified, measured, trained to the end, all mutants killed, all gates hold
    FAILURE = 1  # not certified, measured in part, a run that failed, a gate that does not hold
    KIT_FAILED = 2  # the options, the target or the kit itself: nothing was judged
    NOTHING_RAN = 3  # no check ran, nothing was measured
    INTERRUPTED = 130  # a training run; as shells report SIGINT
