"""Problems from a file, one JSON object a line, in the manner of GSM8K.

    {"question": "Ann has 3 apples and buys 4. How many?", "answer": "3 + 4 = 7 ... #### 7"}

The answer's last number, behind ``####`` where that stands, is due (Cobbe et al. 2021); of a
response, too, the last number counts. Numbers are compared by value: 1,000 and $1000.0 are equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import NamedTuple

from rlconform.contract import ConfigError
from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, RolloutTask

FINAL = "####"
#: An integer with or without commas between its thousands, or a decimal fraction.
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


class _Line(NamedTuple):
    question: str
    answer: str


class JSONLines(RolloutTask):
    """The problems of a file, epoch after epoch; one turn.

    Args:
        path: The file, read whole.
        seed: Draws each epoch's order.
        prefix: Begins every uid.
        shuffle: Whether there is such an order; else the file's.
        system_prompt: First message of every problem.

    Raises:
        ConfigError: The file can't be read, or a line isn't such an object.
    """

    def __init__(
        self,
        path: str | Path,
        seed: int,
        prefix: str,
        *,
        shuffle: bool = True,
        system_prompt: str | None = None,
    ) -> None:
        self._lines = _read(Path(path))
        self._seed = seed
        self._prefix = prefix
        self._shuffle = shuffle
        self._system = (
            () if system_prompt is None else ({"role": "system", "content": system_prompt},)
        )
        self._epoch, self._order = -1, list[int]()

    @property
    def size(self) -> int:
        """Lines of the file."""
        return len(self._lines)

    def problem(self, index: int) -> Problem:
        """See ``RolloutTask``; its ``answer`` is the number that is due."""
        if index < 0:
            raise ValueError(f"problems are numbered from 0, got {index}")
        line = self._lines[self._line_number(index)]
        question = {"role": "user", "content": line.question}
        return Problem(f"{self._prefix}-{index}", (*self._system, question), line.answer)

    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """1 where the response's last number is the one due; a row is over after its first turn."""
        came = last_number(turns[-1].text)
        return EnvStep(float(came is not None and came == last_number(problem.answer)))

    def _line_number(self, index: int) -> int:
        epoch, place = divmod(index, len(self._lines))
        if not self._shuffle:
            return place
        if epoch != self._epoch:
            draw = Random(f"{self._seed}/{self._prefix}/epoch {epoch}").random
            keys = [draw() for _ in self._lines]
            self._epoch, self._order = epoch, sorted(range(len(keys)), key=keys.__getitem__)
        return self._order[place]


def last_number(text: str) -> Decimal | None:
    """Value of the last number in a text, of what is behind ``####`` where that stands."""
    numbers = _NUMBER.findall(text.rpartition(FINAL)[2])
    return Decimal(numbers[-1].replace(",", "")) if numbers else None


def _read(path: Path) -> list[_Line]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {error}") from error
    lines = [
        _parse(line, f"{path}, line {number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    if not lines:
        raise ConfigError(f"{path}: there are no problems in it")
    return lines


def _parse(line: str, where: str) -> _Line:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error.msg}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: not an object with a question and an answer")
    for key in ("question", "answer"):
        if not isinstance(row.get(key), str):
            raise ConfigError(f"{where}: {key} must be a text, got {row.get(key)!r}")
    due = last_number(row["answer"])
    if due is None:
        raise ConfigError(f"{where}: there is no number in the answer {row['answer']!r}")
    return _Line(row["question"], str(due))
