"""``InterplayScenario``: who looks at a partition, who changes it, and who looks again.

A plane that keeps something in a process goes wrong only if that process has looked, another one
has changed something since, and somebody looks again. A scenario is one such sequence. What each
step reads or writes follows from the steps before it, so a scenario without one of its steps is a
scenario too: that makes a failing one smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeVar, get_args

#: What a process asks for. ``see`` are all looks that claim nothing, ``take`` claims of all rows,
#: ``take_some`` other claims. ``wait`` begins a claim that must wake up at the change.
Look = Literal[
    "nothing", "see", "take", "take_some", "wait",
    "read", "read_few", "read_missing", "status", "claim", "claim_some", "claim_later", "fetch",
]  # fmt: skip

#: Looks that consist of other looks.
PARTS: Mapping[Look, tuple[Look, ...]] = {
    "see": ("read", "read_few", "read_missing", "status"),
    "take": ("claim", "fetch"),
    "take_some": ("claim_some", "claim_later", "fetch"),
}

#: What a process does to the partition; ``changes.py`` makes the calls.
Change = Literal[
    "overwrite", "overwrite_wider", "overwrite_column", "overwrite_reversed", "overwrite_some",
    "overwrite_large", "change_dtype", "try_former_dtype", "put_rows", "put_column", "put_nothing",
    "put_column_by_parts", "tag", "tag_again", "tag_lengths", "clear_some", "clear_all",
    "clear_own", "reuse_ids", "reuse_own_ids",
    "start_anew", "start_with_other_schema", "register_again", "claim", "claim_other_task",
    "use_neighbour", "refused_put", "refused_read", "refused_claim", "refused_registration",
    "tag_some", "tag_new", "complete_group", "correct_dtype", "claim_few", "read_twice",
]  # fmt: skip

#: What the rows are: dense, jagged, in groups of two of which one lacks a row, or a megabyte.
Layout = Literal["dense", "jagged", "groups", "large"]

#: A process that attaches before the last look, or closes its client before it; in which role.
Guest = Literal["none", "late", "writer", "looker", "changer"]

#: The looks of drawn scenarios, the last ones twice; smaller scenarios have parts of them.
FIRST_LOOKS: tuple[Look, ...] = ("nothing", "wait", "take_some", "see", "take", "see", "take")
#: Only scenarios of one process make these, which have time for longer chains.
_ALONE = {"tag_some", "tag_new", "complete_group", "correct_dtype", "claim_few", "read_twice"}
#: Only a process that may have missed a change makes these.
_UNAWARE = {"try_former_dtype", "put_column_by_parts", "reuse_own_ids"}
ALONE_CHANGES: tuple[Change, ...] = tuple(one for one in get_args(Change) if one not in _UNAWARE)
CHANGES: tuple[Change, ...] = tuple(one for one in ALONE_CHANGES if one not in _ALONE)
UNAWARE_CHANGES: tuple[Change, ...] = tuple(one for one in get_args(Change) if one not in _ALONE)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
GUESTS: tuple[Guest, ...] = get_args(Guest)

#: The processes by number; the last one is the guest.
PROCESSES = ("the owner", "attached 1", "attached 2", "attached 3")
GUEST = 3

#: Changes of one kind. A change is of the kind with its own name if none lists it.
_KINDS: Mapping[str, tuple[Change, ...]] = {
    "rewrite": (
        "overwrite", "overwrite_wider", "overwrite_column", "overwrite_reversed", "overwrite_some",
        "overwrite_large", "change_dtype", "try_former_dtype",
    ),
    "put": ("put_rows", "put_column", "put_column_by_parts"),
    "tag": ("tag", "tag_again", "tag_lengths"),
    "clear": ("clear_some", "clear_all"),
    "start": ("start_anew", "start_with_other_schema"),
    "claim": ("claim", "claim_other_task"),
    "refused": (
        "refused_put", "refused_read", "refused_claim", "refused_registration", "put_nothing",
    ),
}  # fmt: skip
KIND_OF = {change: kind for kind, changes in _KINDS.items() for change in changes}

#: Changes that end a waiting claim.
WAKING: tuple[Change, ...] = ("put_rows", "put_column")
#: Changes that leave the partition as it is, so that a waiting claim keeps waiting.
IDLE: tuple[Change, ...] = (
    "put_nothing", "tag", "tag_again", "overwrite", "refused_put", "refused_read", "refused_claim",
    "claim_other_task", "use_neighbour",
)  # fmt: skip


T = TypeVar("T")


@dataclass(frozen=True)
class InterplayScenario:
    """One sequence of looks and changes.

    Attributes:
        looks: What the looker asks for at first, and again between two changes.
        changes: One or two changes; up to eight in a scenario of one process.
        registers, writes, looker, changers, last: The processes, by number, in their roles;
            ``last`` looks at everything in the end.
        guest: Which role a process has that joins late or leaves early.
        dtype, order: Numbers that choose what rows are like, and with which looks the end begins.
        turns: A process that puts every second of the first rows.
        alone: Whether one process does everything.
    """

    looks: Look
    changes: tuple[Change, ...]
    registers: int
    writes: int
    looker: int
    changers: tuple[int, ...]
    last: int
    again: bool = True
    guest: Guest = "none"
    layout: Layout = "dense"
    dtype: int = 0
    order: int = 0
    alone: bool = False
    turns: int | None = None

    def relation(self, changer: int) -> tuple[object, ...]:
        """Return which of the processes are the same, seen from one that makes a change."""
        last = {self.looker: "looker", changer: "changer", GUEST: "guest"}
        return (
            self.writes == changer,
            self.looker == changer,
            self.writes == self.looker,
            last.get(self.last, "another"),
        )

    @property
    def fewer_rows(self) -> bool:
        """Whether the partition is registered with fewer rows than it will have."""
        return self.order in {1, 2}

    @property
    def possible(self) -> bool:
        """Whether several processes take part, unless one is alone, and what waits is woken."""
        if self.looks == "wait":
            idle = all(change in IDLE for change in self.changes[:-1])
            if self.layout == "groups" or self.guest == "looker" or not idle:
                return False
            return self.changes[-1] in WAKING
        return self.alone or len({*self.changers, self.looker, self.last}) > 1

    def targets(self) -> frozenset[tuple[object, ...]]:
        """Return the combinations that the scenario covers."""
        kinds = [KIND_OF.get(change, change) for change in self.changes]
        covered: set[tuple[object, ...]] = {
            ("chain", *kinds, len({*self.changers})),
            ("look", self.looks, self.layout),
            ("look", self.looks, self.guest),
            ("who", self.registers, self.writes, self.looker),
        }
        if self.alone:
            covered |= {("pair", *pair) for pair in pairwise(self.changes)}
        knows = self.again and self.looks not in {"nothing", "wait"}
        if knows and self.looker == self.changers[-1] != self.changers[0]:
            covered.add(("answer", self.changes[0], kinds[-1], self.writes == self.looker))
        for change, by in zip(self.changes, self.changers, strict=True):
            covered.add(("who", self.looks, change, self.relation(by)))
            covered.add(("guest", change, self.guest))
            covered.add(("rows", change, self.layout, self.dtype % 2))
            covered.add(("order", change, self.order))
        return frozenset(covered)

    def unaware_targets(self) -> frozenset[tuple[object, ...]]:
        """Return the combinations that the scenario covers, where a writer misses a change."""
        kinds = [KIND_OF.get(change, change) for change in self.changes]
        knows = self.looker == self.writes and self.again and self.looks != "nothing"
        covered: set[tuple[object, ...]] = {
            ("turns", self.looks, self.turns in {None, self.writes}, self.looker == self.writes),
            ("rows", kinds[-1], self.layout, self.dtype),
        }
        if not knows and self.writes == self.changers[-1] != self.changers[0]:
            covered.add(("pair", kinds[0], self.changes[-1]))
            covered.add(("pair", self.changes[0], kinds[-1], self.fewer_rows))
        return frozenset(covered)

    def smaller(self) -> Iterator[InterplayScenario]:
        """Yield scenarios with less in them, those first that leave out most."""
        if len(self.changes) > 1:
            for left_out in range(len(self.changes)):
                one = replace(
                    self,
                    changes=_without(self.changes, left_out),
                    changers=_without(self.changers, left_out),
                )
                yield one
                # The looker may have seen it before.
                if self.guest in {"none", "late"}:
                    yield replace(one, guest="none", last=self.looker)
        if self.looks != "nothing":
            yield replace(self, looks="nothing")
        for part in PARTS.get(self.looks, ()):
            yield replace(self, looks=part)
        if self.again and len(self.changes) > 1:
            yield replace(self, again=False)
        if self.guest not in {"none", "late"}:
            yield self.without_guest()
        if self.layout != "dense":
            yield replace(self, layout="dense")
        if self.turns is not None:
            yield replace(self, turns=None)
        if self.registers != 0:
            yield replace(self, registers=0)
        if self.writes not in {0, GUEST}:
            yield replace(self, writes=0)

    def without_guest(self) -> InterplayScenario:
        """Return the scenario with a process that stays in the place of the guest."""
        stays = min({0, 1, 2} - {self.looker, *self.changers, self.last}, default=1)

        def staying(process: int) -> int:
            return stays if process == GUEST else process

        return replace(
            self,
            guest="none",
            writes=staying(self.writes),
            looker=staying(self.looker),
            changers=tuple(map(staying, self.changers)),
            last=staying(self.last),
        )

    def describe(self) -> str:
        """Return the steps in words, with the process that makes each."""
        who = PROCESSES
        steps = [f"{who[self.registers]} registers", f"{who[self.writes]} puts {self.layout} rows"]
        if self.turns not in {None, self.writes}:
            steps[-1] += f" in turns with {who[self.turns]}"
        look = f"{who[self.looker]} looks ({self.looks})"
        if self.looks != "nothing":
            steps.append(look)
        for number, (change, by) in enumerate(zip(self.changes, self.changers, strict=True)):
            if number and self.again and self.looks not in {"nothing", "wait"}:
                steps.append(f"{look} again")
            steps.append(f"{who[by]} makes the change {change}")
        if self.guest == "late":
            steps.append(f"{who[GUEST]} attaches")
        elif self.guest != "none":
            steps.append(f"{who[GUEST]} closes its client")
        return "; ".join([*steps, f"{who[self.last]} looks at everything"])


def _without(steps: tuple[T, ...], left_out: int) -> tuple[T, ...]:
    return steps[:left_out] + steps[left_out + 1 :]
