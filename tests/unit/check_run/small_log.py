"""``Log``: writes small logs, for the tests of single rules."""

from __future__ import annotations

from typing import Any

from rlconform.check_run.judge import judge_records
from rlconform.check_run.verdict import RuleVerdict
from rlconform.events.schema import (
    Committed,
    PromptDispatched,
    RewardComputed,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    RunStarted,
    Selected,
    StalenessBound,
    StalenessDefinition,
    Trained,
    WeightsApplied,
)

from .log_builder import REWARD, LogBuilder, engine_source

ENGINE = engine_source(0)
DECLARED: dict[str, Any] = {
    "group_size": 1, "prompts_per_step": 1, "rollout_deadline_s": 10, "step_deadline_s": 100,
    "staleness": StalenessBound(definition=StalenessDefinition.START, bound=1),
}  # fmt: skip


class Log(LogBuilder):
    """Writes a run with one engine, groups of one row, and steps of one group."""

    def __init__(self, **declared: Any) -> None:
        super().__init__()
        self.write(RunStarted(**DECLARED | declared))
        self.apply(0)

    def apply(self, version: int, digest: str | None = None) -> None:
        self.write(WeightsApplied(version=version, engine="e", digest=digest), ENGINE)

    def generate(
        self, name: str, version: int | None = 0, tokens: int = 5, **dispatched: Any
    ) -> None:
        self.write(PromptDispatched(group_id=name, prompt_id=f"p-{name}", **dispatched))
        start = RolloutStarted(group_id=name, row=0, weight_version=version, engine="e")
        self.write(start, ENGINE)
        self.write(RolloutFinished(group_id=name, row=0, output=name, tokens=tokens), ENGINE)
        self.write(RewardComputed(group_id=name, row=0, reward=1.0, output=name), REWARD)

    def train(self, name: str, step: int, version: int | None) -> None:
        self.write(Committed(group_id=name, rows=[0]))
        self.write(Selected(group_id=name, step=step, version=version))
        self.write(Trained(group_id=name, rows=[0], step=step, version=version))

    def finish(self) -> None:
        self.write(RunFinished(reason="completed"))

    def verdict(self, rule: str) -> RuleVerdict:
        return next(v for v in judge_records(self.records).verdicts if v.rule == rule)


def small_log(**declared: Any) -> Log:
    log = Log(**declared)
    log.generate("a", step=1, version=0)
    log.train("a", 1, 0)
    return log
