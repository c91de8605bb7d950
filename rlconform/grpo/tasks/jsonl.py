"""``JSONLines``: problems from a file, one JSON object per line, as in GSM8K.

    {"question": "Ann has 3 apples and buys 4. How many?", "answer": "3 + 4 = 7 ... #### 7"}
    {..., "data_source": "gsm8k", "extra_info": {"level": 2}}      optional, for reward functions

The last number of a response is compared with the last number of ``answer``; in both texts, only
what follows ``####`` counts if they contain it (Cobbe et al. 2021). Numbers are compared by value:
1,000 and $1000.0 are equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from rlconform._files import excerpt, parse_json, read_text
from rlconform.contract import ConfigError
from rlconform.grpo.config import DataConfig
from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, QuestionTask, Split

FINAL = "####"
#: Bytes of a file of problems, which is held in memory.
LARGEST_DATA = 4 << 30
#: An integer with or without thousands separators, or a decimal fraction.
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


class _Line(NamedTuple):
    question: str
    answer: str  # the last number of the line's answer
    data_source: str
    extra_info: Mapping[str, Any]


class JSONLines(QuestionTask):
    """The problems of a file, with one turn per row; they repeat in every epoch.

    With ``data.shuffle`` each epoch of training has a new order; validation keeps the file's order.
    ``ConfigError`` if the split has no file, or a line has no question and answer.
    """

    def __init__(self, config: DataConfig, seed: int, split: Split) -> None:
        super().__init__(config, seed, split)
        path, key = (config.path, "path") if split == "train" else (config.val_path, "val_path")
        if path is None:
            raise ConfigError(f"expected data.{key}, the file of the {split} problems")
        self._lines = _read(Path(path))
        self.size = len(self._lines)
        if config.system_prompt is not None:
            self._system = ({"role": "system", "content": config.system_prompt},)
        self._epoch, self._order = -1, list[int]()

    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """Reward 1 if the last number of the response is the answer; the row ends."""
        number = last_number(turns[-1].text)
        return EnvStep(float(number is not None and number == last_number(problem.answer)))

    def _question_and_answer(self, index: int) -> tuple[str, str]:
        line = self._line(index)
        return line.question, line.answer

    def _source_and_extra_info(self, index: int) -> tuple[str, Mapping[str, Any]]:
        line = self._line(index)
        return line.data_source, line.extra_info

    def _line(self, index: int) -> _Line:
        epoch, position = divmod(index, len(self._lines))
        if self._split == "val" or not self._config.shuffle:
            return self._lines[position]
        if epoch != self._epoch:
            draw = self._random(f"epoch {epoch}").random
            keys = [draw() for _ in self._lines]
            self._epoch, self._order = epoch, sorted(range(len(keys)), key=keys.__getitem__)
        return self._lines[self._order[position]]


def last_number(text: str) -> Decimal | None:
    """Return the last number of a text, or of the part after ``####`` if there is one."""
    numbers = _NUMBER.findall(text.rpartition(FINAL)[2])
    return Decimal(numbers[-1].replace(",", "")) if numbers else None


def _read(path: Path) -> list[_Line]:
    text = read_text(path, "name a file of problems", LARGEST_DATA)
    lines = [
        _parse(line, f"{path}, line {number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    if not lines:
        raise ConfigError(f"{path}: the file has no problems")
    return lines


def _parse(line: str, where: str) -> _Line:
    """Return the fields of a line, with the last number of the answer."""
    row = parse_json(line, where)
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: expected an object with a question and an answer")
    for key in ("question", "answer"):
        if not isinstance(row.get(key), str):
            raise ConfigError(f"{where}: {key} must be a string, got {excerpt(repr(row.get(key)))}")
    number = last_number(row["answer"])
    if number is None:
        answer = excerpt(repr(row["answer"]))
        raise ConfigError(f"{where}: there is no number in the answer {answer}")
    source, extra = row.get("data_source", "jsonl"), row.get("extra_info", {})
    if not isinstance(source, str) or not isinstance(extra, dict):
        raise ConfigError(
            f"{where}: expected data_source as a string and extra_info as an object; got "
            f"{excerpt(repr(source))} and {excerpt(repr(extra))}"
        )
    return _Line(row["question"], str(number), source, extra)
