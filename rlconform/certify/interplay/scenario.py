"""``Scenario``: who looks at a partition, who changes it, and who looks again.

A plane that keeps something in a process goes wrong only if that process has looked, another one
has changed something since, and somebody looks again. A scenario is one such sequence. What each
step reads or writes follows from the steps before it, so a scenario without one of its steps is a
scenario too: that makes a failing one smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

#: What a process asks for. ``wait`` begins a claim that must wake up at the change.
Look = Literal[
    "nothing", "read", "read_few", "read_missing", "claim", "claim_some", "claim_later", "status",
    "fetch", "wait",
]  # fmt: skip

#: What a process does to the partition; ``changes.py`` makes the calls.
Change = Literal[
    "overwrite", "overwrite_wider", "overwrite_column", "overwrite_reversed", "overwrite_some",
    "overwrite_large", "change_dtype", "put_rows", "put_half_group", "put_column", "put_nothing",
    "tag", "tag_again", "tag_lengths", "clear_some", "clear_all", "clear_own", "reuse_ids",
    "start_anew", "start_with_other_schema", "register_again", "claim", "claim_other_task",
    "use_neighbour", "refused_put", "refused_read", "refused_claim", "refused_registration",
]  # fmt: skip

#: What the rows are: dense, jagged, in groups of two, or a megabyte together.
Layout = Literal["dense", "jagged", "groups", "large"]

#: A process that attaches before the last look, or closes its client before it; in which role.
Guest = Literal["none", "late", "writer", "looker", "changer"]

LOOKS: tuple[Look, ...] = get_args(Look)
CHANGES: tuple[Change, ...] = get_args(Change)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
GUESTS: tuple[Guest, ...] = get_args(Guest)

#: The processes by number; the last one is the guest.
PROCESSES = ("the owner", "attached 1", "attached 2", "attached 3")
GUEST = 3

#: Changes that end a waiting claim.
WAKING: tuple[Change, ...] = ("put_rows", "put_column")
#: Changes that leave the partition as it is, so that a waiting claim keeps waiting.
IDLE: tuple[Change, ...] = (
    "put_nothing", "tag", "tag_again", "overwrite", "refused_put", "refused_read", "refused_claim",
    "claim_other_task", "use_neighbour",
)  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """One sequence of looks and changes.

    Attributes:
        looks: What the looker asks for at first, and again between two changes.
        changes: One or two changes.
        registers, writes, looker, changers, last: The processes, by number, in their roles;
            ``last`` looks at everything in the end.
        guest: Which role a process has that joins late or leaves early.
        dtype, order: Numbers that choose a column's dtype, and with which looks the end begins.
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

    @property
    def relation(self) -> str:
        """Who of looker and changer is the same process, and who looks in the end."""
        last = {self.changers[-1]: "changer", self.looker: "looker", GUEST: "guest"}
        pair = "same" if self.looker in self.changers else "apart"
        return f"{pair}, {last.get(self.last, 'third')}"

    @property
    def possible(self) -> bool:
        """Whether several processes take part, and what waits is woken."""
        if self.looks == "wait":
            idle = all(change in IDLE for change in self.changes[:-1])
            if self.layout == "groups" or self.guest == "looker" or not idle:
                return False
            return self.changes[-1] in WAKING
        halves = "put_half_group" in self.changes
        return len({*self.changers, self.looker, self.last}) > 1 and (
            not halves or self.layout == "groups"
        )

    def targets(self) -> frozenset[tuple[object, ...]]:
        """Return the combinations that the scenario covers."""
        seen_before = self.changes if self.again else self.changes[:1]
        covered: set[tuple[object, ...]] = {("chain", *self.changes), ("guest", self.guest)}
        for change in seen_before:
            covered.add(("look", self.looks, change, self.relation))
            covered.add(("look", self.looks, change, self.layout))
        for change, by in zip(self.changes, self.changers, strict=True):
            covered.add(("writer", change, self.writes == by, self.writes == self.last))
            covered.add(("guest", change, self.guest))
            covered.add(("kind", change, self.layout, self.dtype))
            covered.add(("order", change, self.order))
        covered.add(("guest", self.looks, self.guest))
        covered.add(("who", self.writes, self.looker, self.changers[-1], self.last))
        covered.add(("who", self.registers, self.writes))
        return frozenset(covered)

    def smaller(self) -> Iterator[Scenario]:
        """Yield scenarios with less in them, those first that leave out most."""
        if len(self.changes) > 1:
            for kept in (1, 0):
                one = replace(self, changes=(self.changes[kept],), changers=(self.changers[kept],))
                yield one
                if self.guest == "none":  # the looker may have seen it between the changes
                    yield replace(one, last=self.looker)
        if self.looks != "nothing":
            yield replace(self, looks="nothing")
        if self.again and len(self.changes) > 1:
            yield replace(self, again=False)
        if self.guest not in {"none", "late"}:
            yield self.without_guest()
        if self.layout != "dense":
            yield replace(self, layout="dense")
        if self.registers != 0:
            yield replace(self, registers=0)
        if self.writes not in {0, GUEST}:
            yield replace(self, writes=0)

    def without_guest(self) -> Scenario:
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
        steps = [f"{who[self.registers]} registers", f"{who[self.writes]} puts the rows"]
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


def draw(random: Random, groups: bool) -> Scenario:
    """Draw a scenario, possible or not; ``groups``: whether the plane claims whole groups."""
    layouts = LAYOUTS if groups else [each for each in LAYOUTS if each != "groups"]
    guest = random.choice([*GUESTS, "none", "none", "none", "late"])
    chain = random.choice([1, 2, 2, 2, 2])

    def process(role: str) -> int:
        return GUEST if guest == role else random.randrange(GUEST)

    looker, changers = process("looker"), tuple(process("changer") for _ in range(chain))
    last = GUEST if guest == "late" else random.choice([looker, looker, *changers, *range(GUEST)])
    return Scenario(
        looks=random.choice(LOOKS),
        changes=tuple(random.choice(CHANGES) for _ in range(chain)),
        registers=random.choice([0, 0, *range(GUEST)]),
        writes=process("writer"),
        looker=looker,
        changers=changers,
        last=last if guest == "late" or last != GUEST else random.randrange(GUEST),
        again=random.random() < 0.8,
        guest=guest,
        layout=random.choice(list(layouts)),
        dtype=random.randrange(4),
        order=random.randrange(4),
    )
