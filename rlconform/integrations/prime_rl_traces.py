"""The traces of a prime-rl run: the part of their format that the importer reads.

A run's folder has these files; each line is an episode of a group, with its traces:

    rollouts/step_<n>/train/all/traces.jsonl        each episode as it arrives while batch n fills
    rollouts/step_<n>/train/effective/traces.jsonl  the episodes, with the traces that step n is of

The format was read from prime-rl at 559b44772 and verifiers at a60a606ec. Fields that aren't named
here are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from rlconform._files import lines_of


class PolicySpan(Struct):
    """The versions of the policy with which an episode began and ended."""

    start: int
    end: int


class _Work(Struct):
    step: int
    policy: PolicySpan | None = None


class _Run(Struct):
    id: str
    work: _Work


class _Group(Struct):
    id: str


class _Task(Struct):
    key: str | None = None
    hash: str | None = None
    data: dict[str, object] = {}


class TraceError(Struct):
    """An error of an episode or a trace, by the name of its class."""

    type: str


class _Reward(Struct):
    score: float
    weight: float = 1.0


class _Agent(Struct):
    trainable: bool = True


class _Span(Struct):
    start: float = 0.0
    end: float = 0.0


class _Timing(Struct):
    start: float | None = None
    agent: _Span = field(default_factory=_Span)
    scoring: _Span = field(default_factory=_Span)


class _Usage(Struct):
    completion_tokens: int = 0


class _Call(Struct):
    usage: _Usage | None = None


class PrimeTrace(Struct):
    """What one agent did in an episode."""

    id: str
    ok: bool = False
    agent: _Agent = field(default_factory=_Agent)
    rewards: dict[str, _Reward | None] = {}
    errors: list[TraceError] = []
    timing: _Timing = field(default_factory=_Timing)
    calls: list[_Call] = []

    @property
    def reward(self) -> float:
        """The weighted sum of its rewards."""
        return sum(one.score * one.weight for one in self.rewards.values() if one is not None)


class PrimeEpisode(Struct):
    """One run of an environment, with the traces of its agents."""

    id: str
    group: _Group
    run: _Run
    task: _Task
    errors: list[TraceError] = []
    traces: list[PrimeTrace] = []

    @property
    def group_id(self) -> str:
        """Name of the group, unique in the run."""
        return self.group.id

    @property
    def policy(self) -> PolicySpan | None:
        """The versions that generated it; None for a frozen policy."""
        return self.run.work.policy

    @property
    def prompt_id(self) -> str:
        """Name of the task."""
        task = self.task
        return task.key or task.hash or str(task.data.get("idx", self.group.id))

    @property
    def begun_s(self) -> float | None:
        """When the first of its traces began, in seconds since 1970."""
        return min((t.timing.start for t in self.traces if t.timing.start), default=None)


def steps_of(source: Path) -> list[tuple[int, Path]]:
    """Return the steps of a run with the folders of their training episodes, in order."""
    root = source if source.name == "rollouts" else source / "rollouts"
    numbered = ((re.fullmatch(r"step_(\d+)", path.name), path) for path in root.glob("step_*"))
    return sorted((int(found[1]), path / "train") for found, path in numbered if found)


def episodes_in(folder: Path) -> Iterator[PrimeEpisode]:
    """Iterate over the episodes of a file; there are none if there is no file."""
    path = folder / "traces.jsonl"
    if not path.is_file():
        return
    for number, line in enumerate(lines_of(path), 1):
        try:
            yield _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} is no episode: {error}") from error


_DECODER = msgspec.json.Decoder(PrimeEpisode)
