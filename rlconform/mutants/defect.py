"""``Defect``: a class of the package with one defect, and what must find it; ``planted`` plants it.

A defect is a small subclass of a real class. ``planted`` puts it in the place of the real one for
the length of a block; all else is real.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch


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
