"""``RunPlan``: what one long run is made of, and ``LONG_RUNS``: what the runs of a check judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar

import torch

from rlconform.certify.properties.long_runs.caller import Mode
from rlconform.certify.properties.long_runs.near_columns import NearColumns
from rlconform.certify.properties.long_runs.near_objects import NearObjects
from rlconform.certify.properties.long_runs.near_values import (
    KEPT,
    KEPT_WIDE,
    KINDS,
    MANY_WIDTHS,
    WIDE_WIDTHS,
    WIDTHS,
    FieldKind,
)
from rlconform.certify.properties.long_runs.probes import keeps_rows, takes_names
from rlconform.certify.properties.runner import PropertyRunner
from rlconform.certify.scenarios.confusable_names import CONFUSABLE, confusable_names
from rlconform.certify.scenarios.odd_texts import ODD_TEXTS
from rlconform.contract import Tags
from rlconform.contract.fields import INPUT_LENGTHS

TASKS = ("train", "prev_lp", "prev", "train_2")
#: The object column.
LOG = "log"
#: A tag that has small numbers, as GRPO's rows have, and may grow when a row is put again.
WEIGHT_VERSION = "weight_version"
#: Keys of tags; one is the name of a field.
KEYS = ("v", "note", "x", INPUT_LENGTHS, WEIGHT_VERSION)
ODD_KEYS = [text for text in ODD_TEXTS if text]
#: Names that a plane may give to what it keeps beside a field ``x``, or beside all fields.
NEAR_NAMES = (
    "x_lengths", "x_offsets", "x_values", "x_shape", "x_dtype", "x_mask", "x_0", "x_1", "x0",
    "lengths", "offsets", "values", "data", "index", "keys", "ids", "tags", "fields", "version",
)  # fmt: skip
#: Chance that the fields of a run are confusable, that its tasks are, and that its ids are.
CONFUSABLE_CHANCE = 0.4
#: Beginnings of confusable ids.
STEMS = 4
#: Tensor fields of a run; a few runs have many more, each of them in few puts.
FIELDS, MANY_FIELDS = 5, 90
#: Fields of a put or read at most, but for a few.
SOME_FIELDS = 6
#: Kinds of fields of a large run: mostly one number a row, or token ids.
LARGE_KINDS = (*KINDS, *[FieldKind(torch.int64, (), 0)] * 8, *[FieldKind(torch.int64)] * 4)
#: Kinds of fields of a wide run: jagged ones, rows of 64 KiB or more, and one number a row.
WIDE_KINDS = (
    FieldKind(torch.int64), FieldKind(torch.float32), FieldKind(torch.uint8, (2, 3)),
    FieldKind(torch.float32, (), 20_000), FieldKind(torch.uint8, (3,), 90_000),
    FieldKind(torch.int64, (), 0),
)  # fmt: skip
#: Rows of a batch; those of a wide run; those of a large run, of which some are beyond what a plane
#: pages or packs.
SIZES = (1, 1, 1, 2, 2, 3, 4, 8, 17, 33)
WIDE = (1, 1, 1, 2, 2, 3, 4)
LARGE = (1, 3, 16, 64, 130, 260, 260, 520, 1030, 2060)
#: Tensor fields of a large or wide run; rows of a partition after which none are put, usually and
#: in a wide run.
FEW_FIELDS, MOST_ROWS, MOST_WIDE_ROWS = 3, 5000, 24
#: Claims of a run that wait for rows that never come, and that wait for rows put meanwhile.
MOST_WAITS = 6

T = TypeVar("T")
Judged = Literal["rows", "objects", "tags", "claims", "status", "refusals"]
ALL: frozenset[Judged] = frozenset({"rows", "objects", "tags", "claims", "status", "refusals"})


#: ``refuses``: with calls that a plane must or may refuse. ``spoils``: the run changes what it gave
#: to calls and got from them. ``registers``: partitions are registered again, with more tasks.
Style = Literal["plain", "refuses", "spoils", "registers"]


@dataclass(frozen=True)
class LongRunProfile:
    """The style of the runs that judge a requirement, and the kinds of answers that it judges."""

    style: Style
    judged: frozenset[Judged]


LONG_RUNS = {
    "PUT-13": LongRunProfile("plain", frozenset({"rows"})),
    "PUT-21": LongRunProfile("plain", frozenset({"objects"})),
    "TAG-01": LongRunProfile("plain", frozenset({"tags"})),
    "CLAIM-02": LongRunProfile("plain", frozenset({"claims"})),
    "STAT-01": LongRunProfile("plain", frozenset({"status"})),
    "PUT-16": LongRunProfile("refuses", ALL),
    "CLAIM-03": LongRunProfile("registers", ALL),
    "GET-13": LongRunProfile("spoils", ALL),
}

#: Calls that some of the runs of a style make more often than others.
OFTEN: dict[Style, tuple[tuple[str, ...], ...]] = {
    "plain": (
        ("put_more", "overwrite_all", "read"),
        ("put_more", "read", "read_again"),
        ("tag", "claim"),
        ("claim", "wait", "time_out", "clear"),
        ("status", "drain", "tag", "clear"),
    ),
    "refuses": (("refuse", "claim", "status"),),
    "spoils": (("read", "fetch", "claim"),),
    "registers": (("claim", "status"), ("claim", "tag", "clear"), ("put_more", "read")),
}

#: Calls of a run; each is a method of ``LongRunPartition``.
CALLS = (
    "put_new", "put_more", "fill", "renew", "put_again", "set_back", "overwrite_all", "tag",
    "clear", "slide", "burst", "claim", "wait", "time_out", "drain", "read", "read_again", "fetch",
    "status",
)  # fmt: skip
#: How many claims wait all through a run.
STANDING = (0, 0, 0, 1, 3, 40)
#: Shares of the runs of several processes that are large, and that are wide.
LARGE_SHARE, WIDE_SHARE = 0.4, 0.3
#: Share of the runs, apart from the large ones, whose rows have very many lengths.
MANY_WIDTHS_SHARE = 0.15
#: Rows of a group of the runs that claim whole groups, and their share.
GROUP_SIZES, GROUPED_SHARE = (2, 4, 8, 16), 0.2
#: Ranks of the claims of a run: without ranks, of two, of eight, or mostly of one.
RANKS: tuple[tuple[int | None, ...], ...] = (
    (None,), (None, None, 0, 1), (0, 1), tuple(range(8)), (*[0] * 19, 1), (None, *[3] * 9),
)  # fmt: skip
#: How a run makes its calls.
MODES: tuple[Mode, ...] = ("here", "here", "here", "threads", "threads", "inference", "loop")


def id_of(stem: str, number: int, digits: int, group_size: int) -> str:
    """Return an id with a number, which also names its group if rows have groups."""
    if group_size == 1:
        return f"{stem}{number:0{digits}}"
    group, member = divmod(number, group_size)
    return f"{stem}{group:0{digits}}_g{member}"


class RunPlan:
    """The values, ids and weights of one run, all drawn from ``rng``.

    Attributes:
        fields: The names of all fields.
        declared: The fields that are registered; a put may bring others.
        tasks: The tasks that claim.
        registers: Whether partitions are registered again while their rows live.
        first_tasks: The tasks of the first registration of a partition.
        ranks: The ranks that a claim is drawn from, or None for a claim without a rank.
        tensor_kinds: The kinds from which the kind of a tensor field is drawn.
        mode: How the run makes its calls.
        several_processes: Whether several processes make them.
        large: Whether batches have hundreds of rows: several processes then make a large step.
        wide: Whether rows have kilobytes or megabytes.
        most_rows: Rows of a partition after which none are put.
        group_sizes: Rows of a group, which claims return whole, first and after a clear of all
            rows; 1 without groups.
        standing: How many claims wait all through the run.
        wrong: The kind of the run's first wrong answer.
        over: Whether the run may make no further step: the model can't follow the plane.
    """

    def __init__(self, profile: LongRunProfile, rng: Random, runner: PropertyRunner) -> None:
        self.profile, self.rng, self.runner = profile, rng, runner
        runner.scatter(rng)
        self.several_processes = runner.of_several_processes
        chance = rng.random() if self.several_processes else 1.0
        self.large = chance < LARGE_SHARE
        self.wide = LARGE_SHARE <= chance < LARGE_SHARE + WIDE_SHARE
        self.most_rows = MOST_WIDE_ROWS if self.wide else MOST_ROWS
        many = not self.large and rng.random() < MANY_WIDTHS_SHARE
        widths = WIDE_WIDTHS if self.wide else MANY_WIDTHS if many else WIDTHS
        self.rows = NearColumns(rng, widths, kept=KEPT_WIDE if self.wide else KEPT)
        self.objects = NearObjects(rng, self.wide, own_texts=self.large)
        names = ["x", "y", *rng.sample(NEAR_NAMES, FIELDS - 2)]
        if self.large or self.wide:
            del names[FEW_FIELDS:]
        elif rng.random() < 0.15:
            names += [f"y{n}" for n in range(MANY_FIELDS)]
        names, self.tasks = self._accepted_names(names)
        self.tensor_kinds = LARGE_KINDS if self.large else WIDE_KINDS if self.wide else KINDS
        self.kinds = self.draw_kinds(names)
        self.fields = [*names, *([] if runner.refuses_objects else [LOG])]
        self.declared = [*names[: rng.choice((2, FIELDS, len(names)))], LOG]
        self.wrong: Judged | None = None
        self.over = False
        self.waits = 0
        self.ranks = rng.choice(RANKS)
        self.registers = profile.style == "registers" and keeps_rows(runner)
        few = rng.sample(self.tasks, rng.choice((1, 2)))
        self.first_tasks = few if self.registers else self.tasks
        self.mode: Mode = "here" if self.several_processes else rng.choice(MODES)
        grouped = runner.claims_groups and rng.random() < GROUPED_SHARE
        self.group_sizes = rng.sample(GROUP_SIZES, 2) if grouped else [1]
        alone = self.several_processes or grouped
        self.standing = 0 if alone else rng.choice(STANDING)
        self._weights = self._draw_weights()
        self._sizes = LARGE if self.large else WIDE if self.wide else SIZES
        self._scale = 1 if self.large or self.wide else rng.choice((1, 1, 10, 60))
        stem = rng.choice(("u0_g", f"{'a' * 70}/", "0", rng.choice(ODD_KEYS)))
        self._stems = list(dict.fromkeys(self._names([stem] * STEMS)))
        self._digits = rng.choice((0, 0, 3, 6)) if self.large else 0
        self._ids = 0

    def draw_kinds(self, names: Sequence[str]) -> dict[str, FieldKind]:
        """Draw the kind of each of these fields."""
        drawn = self.rng.choices(self.tensor_kinds, k=len(names))
        return dict(zip(names, drawn, strict=True))

    def _accepted_names(self, fields: list[str]) -> tuple[list[str], list[str]]:
        """Draw names of fields and tasks; take the usual ones if the plane refuses these."""
        usual = fields, list(TASKS)
        drawn = self._names(fields), self._names(TASKS)
        return drawn if drawn == usual or takes_names(self.runner, *drawn) else usual

    def _names(self, usual: Sequence[str]) -> list[str]:
        """Return these names, or now and then as many that a plane may take for one another."""
        if self.rng.random() > CONFUSABLE_CHANCE:
            return list(usual)
        return confusable_names(self.rng.choice(list(CONFUSABLE)), len(usual))

    def _draw_weights(self) -> dict[str, int]:
        """Draw how often each call is made: a run without some calls finds what these hide."""
        weights = {call: self.rng.choice((0, 1, 3, 8)) for call in CALLS}
        weights |= dict.fromkeys(self.rng.choice(OFTEN[self.profile.style]), 5)
        for needed in ("put_new", "claim", "clear", "read"):
            weights[needed] = max(2, weights[needed])
        weights["drain"] = min(2, weights["drain"])
        if self.profile.style == "refuses":
            weights["refuse"] = 8
        if self.registers:
            weights["register"] = 5
        if self.large:
            weights["put_new"] = 8
        weights["burst"] = 0 if self.large or self.wide else self.rng.choice((0, 0, 0, 1))
        if self.group_sizes != [1]:  # how many rows such a claim waits for is a question
            weights |= {"wait": 0, "time_out": 0}
        return weights

    def judges(self, *kinds: Judged) -> bool:
        """Whether the run judges any of these."""
        return not self.profile.judged.isdisjoint(kinds)

    @contextmanager
    def judged_as(self, kind: Judged) -> Iterator[bool]:
        """Yield whether the run judges this kind; if the block raises, this kind was wrong."""
        try:
            yield kind in self.profile.judged
        except Exception:
            self.wrong = self.wrong or kind
            raise

    def next_call(self) -> str:
        """Draw the name of a call."""
        return self.rng.choices(list(self._weights), list(self._weights.values()))[0]

    def new_id(self, group_size: int = 1) -> str:
        """Return an id that is new, or now and then one of forty that come again."""
        if self.rng.random() < 0.2:
            return id_of(self.rng.choice(self._stems), self.rng.randrange(40), 0, group_size)
        self._ids += 1
        number, place = divmod(self._ids, len(self._stems))
        return id_of(self._stems[place], number, self._digits, group_size)

    def size(self) -> int:
        """Draw how many rows a put of new rows has; a few runs have a few large puts."""
        return self.rng.choice(self._sizes) * (self._scale if self.rng.random() < 0.05 else 1)

    def some(self, rows: Sequence[str]) -> list[str]:
        """Draw some of the rows, in their order, in the reverse order or in any."""
        if not rows:
            return []
        size = min(len(rows), self.rng.choice(self._sizes))
        if self.rng.random() < 0.7:
            return self.rng.sample(rows, size)
        at = self.rng.randrange(len(rows))
        return list(rows[at : at + size])[:: self.rng.choice((1, -1))]

    def rearranged(self, items: Sequence[T]) -> list[T]:
        """Return the items in their order, with two of them swapped, or in any order."""
        made = list(items)
        match self.rng.randrange(3):
            case 0 if len(made) > 1:
                a, b = self.rng.sample(range(len(made)), 2)
                made[a], made[b] = made[b], made[a]
            case 1:
                self.rng.shuffle(made)
        return made

    def some_fields(self) -> list[str]:
        """Draw some of the fields, in any order; seldom more than a few."""
        most = len(self.fields) if self.rng.random() < 0.05 else SOME_FIELDS
        return self.rng.sample(self.fields, self.rng.randint(1, min(most, len(self.fields))))

    def tags(self) -> Tags:
        """Draw the tags of a row."""
        keys = self.rng.sample(KEYS, self.rng.choice((0, 1, 1, 2, len(KEYS))))
        if self.rng.random() < 0.05:
            keys += self.rng.sample(ODD_KEYS, self.rng.choice((1, 2, 40)))
        lengths = (0, 1, 7, 255, 256, 65536)
        drawn = {key: self.objects.tag() for key in keys}
        numbers = {INPUT_LENGTHS: lengths, WEIGHT_VERSION: range(9)}
        return drawn | {key: self.rng.choice(numbers[key]) for key in keys if key in numbers}
