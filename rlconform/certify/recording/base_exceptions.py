"""Turns what a plane raises, and ``except Exception`` does not catch, into a violation.

``SystemExit``, ``GeneratorExit`` and ``KeyboardInterrupt`` of a plane would end the process of the
checks, or look like a person who interrupts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.recording.shorten import error_text


def is_exception(bases: list[str]) -> bool:
    """Whether the class with these bases' names is one that ``except Exception`` catches."""
    return "Exception" in bases


def violation_of(error: BaseException, what: str) -> BaseException:
    """Return the violation by a call that raised ``error``; the error itself if it may raise it."""
    if isinstance(error, Exception):
        return error
    return ContractViolation(f"{what} to return, or to raise an Exception", error_text(error))


@contextmanager
def only_exceptions(what: str) -> Iterator[None]:
    """Raise the violation instead of the error; pass on Ctrl-C, as the block is in no thread."""
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise violation_of(error, what) from error
