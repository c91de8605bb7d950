"""``complaints``: whether a run ended as its scenario says; a pure function."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_TYPED = re.compile(r"^rlconform: train: (\w+): ", re.MULTILINE)


@dataclass(frozen=True)
class GoesOn:
    """The run is completed: exit code 0, no group lost, and ``check-run`` is clean."""


@dataclass(frozen=True)
class Ends:
    """The run ends with one of these errors, in one line, and its log says that it failed.

    ``rules`` are those of ``check-run`` that find what has happened; no other rule may fail.
    """

    errors: frozenset[str]
    rules: frozenset[str] = frozenset()


Ending = GoesOn | Ends


@dataclass(frozen=True)
class Observed:
    """What is left of a run that was struck."""

    exit_code: int | None  # None if it had not ended by its deadline
    seconds: float  # from the fault until nothing of the run is left
    stderr: str
    ended: str | None = None  # reason of run_finished
    found: Sequence[str] = ()  # what keeps rules of check-run from passing, "rule: why"
    trained: int = 0  # groups
    wanted: int = 0  # groups that a whole run trains on
    victim: str = ""  # a process that must be among the lost ones; "" if none must
    lost: Sequence[str] = ()  # those that process_lost and server_failed name
    left: Sequence[str] = field(default=())  # processes that still run

    @property
    def error(self) -> str:
        """The type of the error that the last line names; "" without one."""
        found = _TYPED.findall(self.stderr)
        return found[-1] if found else ""


def complaints(seen: Observed, ending: Ending) -> list[str]:
    """Return what is wrong with the end of a run, a sentence each; empty if it is right."""
    wrong = [f"expected no process to be left; got {name}" for name in seen.left]
    if seen.exit_code is None:
        return [*wrong, f"expected the run to end; it goes on after {seen.seconds:.0f} s"]
    if seen.victim and seen.victim not in seen.lost:
        wrong.append(f"expected the log to name {seen.victim} as lost; got {list(seen.lost)}")
    if "Traceback" in seen.stderr:
        wrong.append(f"expected an error in one line; got {seen.stderr[-2000:]}")
    if isinstance(ending, GoesOn):
        return wrong + _unlike_a_whole_run(seen)
    return wrong + _unlike_a_typed_end(seen, ending)


def _unlike_a_whole_run(seen: Observed) -> list[str]:
    wrong = list(seen.found)
    if seen.exit_code != 0:
        wrong.append(f"expected exit code 0; got {seen.exit_code}: {seen.stderr[-2000:]}")
    if seen.ended != "completed":
        wrong.append(f"expected run_finished completed; got {seen.ended}")
    if seen.trained != seen.wanted:
        wrong.append(f"expected {seen.wanted} groups to be trained on; got {seen.trained}")
    return wrong


def _unlike_a_typed_end(seen: Observed, ending: Ends) -> list[str]:
    rules = {line.partition(":")[0] for line in seen.found}
    wrong = [line for line in seen.found if line.partition(":")[0] not in ending.rules]
    if missing := ending.rules - rules:
        wrong.append(f"expected check-run to find it by {sorted(missing)}; got {sorted(rules)}")
    if seen.exit_code == 0 or seen.error not in ending.errors:
        wrong.append(
            f"expected one of {sorted(ending.errors)} and an exit code that is not 0; got "
            f"{seen.error!r} and {seen.exit_code}: {seen.stderr[-2000:]}"
        )
    if seen.ended != "failed":
        wrong.append(f"expected run_finished failed; got {seen.ended}")
    return wrong
