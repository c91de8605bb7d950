"""``NearObjects`` draws objects and tags, many of which differ by little from earlier ones.

``near_values`` says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch

from rlconform.certify.properties.long_runs.near_values import EXACT, KEPT, KEPT_WIDE, NEW
from rlconform.certify.scenarios.odd_texts import ODD_TEXTS

#: Values of objects and tags: some are equal for ``==``, some have the same text or length.
SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1.0, 0.0, 0.1, 1e300, math.inf, math.nan,
    2**31, 2**31 - 1, 2**53 + 1, -(2**63), "", "0", "1", "1.0", "None", "True", "nan", "a", "b",
    "a\x00", "\x00", "é", "e\u0301", "a" * 100, "a" * 99 + "b", "b" + "a" * 99, "null", "[]",
)  # fmt: skip
#: Keys of dicts.
_KEYS = ("role", "content", "turns", "é", "")
#: Lengths of long texts; those of the objects of a wide run.
_LONG = (31, 255, 256, 1000, 5000)
WIDE_TEXTS = (5_000, 20_000, 70_000, 140_000, 300_000)
#: Bits of the number that makes a text of its own, and share of tags and columns of such texts.
OWN_BITS, OWN_SHARE = 80, 0.4
#: Levels of lists and dicts in an object.
_DEPTH = 3


@dataclass
class NearObjects:
    """Draws objects and tags from ``rng``, which each step of a run sets anew."""

    rng: Random
    wide: bool = False  # whether most objects have a text of kilobytes
    own_texts: bool = False  # whether many rows have texts that no other row has
    _objects: list[Any] = field(default_factory=list)
    _tags: list[Any] = field(default_factory=list)

    def extended(self, earlier: Sequence[Sequence[Any]]) -> list[Any]:
        """Return an object for each row: a former one with a turn more, or changed, or another."""
        made = self.objects(len(earlier))
        for row, own in enumerate(earlier):
            logs = [value for value in own[-3:] if isinstance(value, list)]
            chance = self.rng.random()
            if logs and chance < 0.5:
                made[row] = [*deepcopy(self.rng.choice(logs)), {"role": self._scalar()}]
            elif own and chance < 0.65:
                made[row] = self._changed(deepcopy(own[-1]))
        return made

    def objects(self, n: int) -> list[Any]:
        """Return ``n`` objects of the types that the capability ``objects`` names.

        Now and then all are texts, or all numbers: a plane may store such a column otherwise.
        """
        if self.own_texts and self.rng.random() < OWN_SHARE:
            return [{"content": self._own_text()} for _ in range(n)]
        if not self.wide and self.rng.random() < 0.3:
            kind = self.rng.choice((str, int, float))
            alike = [value for value in (*SCALARS, "x" * 300) if type(value) is kind]
            return self.rng.choices(alike, k=n)
        made = [self._near(self._objects, self._wide if self.wide else self._new) for _ in range(n)]
        most = KEPT_WIDE if self.wide else KEPT
        self._objects += deepcopy(made[: most // 2])
        del self._objects[:-most]
        return made

    def other_objects(self, n: int) -> list[Any]:
        """Return ``n`` objects of which some, or all, have parts of other types."""
        if self.rng.random() < 0.3:
            make = self.rng.choice(_OTHERS)
            return [make(self.rng.randrange(3)) for _ in range(n)]
        made = self.objects(n)
        for at in self.rng.sample(range(n), (n + 1) // 2):
            other = self.rng.choice(_OTHERS)(self.rng.randrange(3))
            made[at] = self.rng.choice((other, [other], {"turns": [other, made[at]]}))
        return made

    def tag(self) -> Any:
        """Return the value of a tag."""
        if self.own_texts and self.rng.random() < OWN_SHARE:
            return self._own_text()
        made = self._near(self._tags, self._scalar)
        made = made if made is None or isinstance(made, bool | int | float | str) else ""
        self._tags.append(made)
        del self._tags[:-KEPT]
        return made

    def _own_text(self) -> str:
        return f"{self.rng.getrandbits(OWN_BITS):020x}"

    def _near(self, kept: Sequence[Any], new: Callable[[], Any]) -> Any:
        if not kept or self.rng.random() < NEW:
            return new()
        one = deepcopy(self.rng.choice(kept))
        return one if self.rng.random() < EXACT else self._changed(one)

    def _scalar(self) -> Any:
        match self.rng.randrange(10):
            case 0 | 1:
                return self.rng.getrandbits(self.rng.choice((8, 31, 63)))
            case 2:
                return "x" * self.rng.choice(_LONG) + self.rng.choice("abc")
            case 3:
                return self.rng.choice(ODD_TEXTS)
            case _:
                return self.rng.choice(SCALARS)

    def _new(self, depth: int = 0) -> Any:
        n = self.rng.choice((0, 1, 1, 2, 3))
        match self.rng.randrange(2 if depth == _DEPTH else 5):
            case 0 | 1:
                return self._scalar()
            case 2:
                return {self.rng.choice(_KEYS): self._new(depth + 1) for _ in range(n)}
            case _:
                return [self._new(depth + 1) for _ in range(n)]

    def _wide(self) -> Any:
        text = {"content": self.rng.choice("abc") * self.rng.choice(WIDE_TEXTS)}
        return self.rng.choice(([text, self._new(1)], text, self._new()))

    def _changed(self, value: Any) -> Any:
        """Return the value with one part replaced by one that is like it."""
        if isinstance(value, dict) and value:
            name = self.rng.choice(list(value))
            renamed = self.rng.random() < 0.2
            value["more" if renamed else name] = self._changed(value.pop(name))
        elif isinstance(value, list) and value:
            self._change_list(value)
        else:
            like = self.rng.random() < 0.8
            return self.rng.choice(_alike(value)) if like else self._scalar()
        return value

    def _change_list(self, value: list[Any]) -> None:
        at = self.rng.randrange(len(value))
        match self.rng.randrange(5):
            case 0:
                value.append(deepcopy(value[at]))
            case 1:
                value.reverse()
            case 2:
                del value[at]
            case _:
                value[at] = self._changed(value[at])


def _alike(value: Any) -> list[Any]:
    """Return values that a careless plane takes for ``value``."""
    match value:
        case bool():
            return [int(value), float(value), str(value), not value]
        case int():
            return [value + 1, value ^ 1, str(value), bool(value), float(value)]
        case float():
            whole = [int(value)] if math.isfinite(value) else []
            return [str(value), value + 1.0, 0.1 + 0.2, 0.3, *whole]
        case str():
            middle = len(value) // 2
            same_ends = f"{value[:middle]}#{value[middle + 1 :]}"
            others = [f"{value} ", value[:-1], f"{value}\x00", value[::-1], value.upper(), [value]]
            return [same_ends, same_ends, *others]  # twice: drawn more often
        case None:
            return ["None", "", 0, False, []]
        case _:  # an empty list or dict
            return [None, [], {}, [None], {"": None}]


def _with_its_first(whole: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a tensor and a part of it, which begin at one address."""
    return {"whole": whole, "first": whole[:2]}


#: Makers of values of other types, which a plane may refuse.
_OTHERS: tuple[Callable[[int], Any], ...] = (
    lambda n: (n, "a"),
    lambda n: {n, "a"},
    lambda n: b"a\x00" * n,
    np.float32,
    np.int64,
    lambda n: np.arange(n + 1),
    lambda n: torch.arange(n + 1),
    lambda n: torch.arange(2.0 * n + 4).view(2, n + 2).t(),
    lambda n: np.arange(n + 4)[::-2],
    lambda n: [*torch.arange(n + 5).unbind(), *torch.arange(n + 5)[:3].expand(2, 3)],
    lambda n: _with_its_first(torch.arange(n + 3)),
    lambda n: torch.tensor(float(n)),
    lambda n: {n: "a", str(n): "b"},
)
