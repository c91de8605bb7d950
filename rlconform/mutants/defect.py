"""``Defect``: a class of the package with one defect, and what must find it; ``planted`` plants it.

A defect is a small subclass of a real class. ``planted`` puts it in the place of the real one for
the length of a block; all else is real. ``RunDefect`` is one that a run shows, in the files that it
writes. ``defects_of`` lists the defects of a package.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import patch

#: Errors with which a defect may end its run; what the run has written is judged all the same.
_ENDS = (RuntimeError, ValueError, LookupError, AssertionError, OSError)


@dataclass(frozen=True)
class Defect:
    """A class with one defect.

    Attributes:
        broken: The class; its base is the real class that it replaces.
        found_by: Rules that must find it; none if ``hidden`` says why.
        evidence: Text that a sentence of the first rule must contain.
        may: Other rules that may find its consequences; no further rule finds anything.
        seen: The field failures that it comes from.
        hidden: Why no rule can find it; "" if one can.
    """

    name: str
    broken: type
    found_by: tuple[str, ...]
    evidence: str
    may: tuple[str, ...]
    seen: str
    hidden: str

    @property
    def rationale(self) -> str:
        """What the class does wrong."""
        return inspect.getdoc(self.broken) or ""


D = TypeVar("D", bound=Defect)


@dataclass(frozen=True)
class RunDefect(Defect, ABC):
    """A defect that a run shows in the files that it writes; ``when`` is that run."""

    when: Any  # each subclass says what kind of run

    @abstractmethod
    def run(self, folder: Path) -> Exception | None:
        """Make the run in a folder; return the error with which it ended, if it says so."""

    def write(self, folder: Path) -> str:
        """Make the run with the defect; return the error with which it ended, or ""."""
        with planted(self.broken):
            try:
                error = self.run(folder)
            except _ENDS as raised:
                error = raised
        return "" if error is None else f"{type(error).__name__}: {error}"


@contextmanager
def planted(broken: type) -> Iterator[None]:
    """Put a class in the place of its base, in all modules of the trainer that use it."""
    base = broken.__mro__[1]
    replaced = base.__name__
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("rlconform.grpo.") and vars(module).get(replaced) is base:
                stack.enter_context(patch.object(module, replaced, broken))
        yield


@cache
def defects_of(package: ModuleType, kind: type[D]) -> dict[str, D]:
    """Return each defect of a kind in the modules of a package, by its name.

    Raises:
        ValueError: Two defects have the same name.
    """
    found: dict[str, D] = {}
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(import_module(info.name)).values():
            if isinstance(value, kind):
                if value.name in found:
                    raise ValueError(f"two defects are both named {value.name}")
                found[value.name] = value
    return dict(sorted(found.items()))
