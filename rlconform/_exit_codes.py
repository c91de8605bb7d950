"""The exit codes of the ``rlconform`` command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of all commands; each command's help explains them."""

    SUCCESS = 0  # certified, measured, trained to the end, all mutants killed, all gates hold
    FAILURE = 1  # not certified, measured in part, a run that failed, a gate that does not hold
    KIT_FAILED = 2  # an error in the options, the target or rlconform: nothing was judged
    NOTHING_RAN = 3  # no check ran, nothing was measured
    STOPPED = 75  # a training run that SIGUSR1 stopped at a checkpoint; start it again
    INTERRUPTED = 130  # an interrupted training run; shells report SIGINT as 130
