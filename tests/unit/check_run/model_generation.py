"""``ModelGeneration``: the side of the model that dispatches prompts, generates and commits.

A row is new, running, finished and rewarded, or cut by a sync; a random generator chooses which row
goes on, and which fails.
"""

from __future__ import annotations

from copy import deepcopy
from random import Random

from rlconform.events.schema import (
    Cleared,
    Committed,
    DropCause,
    Dropped,
    EventSource,
    PlaneOp,
    PromptDispatched,
    Record,
    RewardComputed,
    RewardFailed,
    RewardFailureCause,
    RolloutFailed,
    RolloutFinished,
    RolloutStarted,
    Segment,
)

from .log_builder import DRIVER, REWARD, LogBuilder, engine_source
from .scenario import ModelGroup, ModelRow, ModelState, Scenario


class ModelGeneration:
    """Groups from their dispatch until they are ready, or dropped."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.random = Random(scenario.seed)
        self.log = LogBuilder()
        self.state = ModelState()
        self.engines = [engine_source(number) for number in range(scenario.engines)]
        self.driver: EventSource = DRIVER
        self.calls = 0
        self.saved = deepcopy(self.state)
        self.engine_died = self.crashed = False

    @property
    def records(self) -> list[Record]:
        """The log so far."""
        return self.log.records

    def _write(self, event: object) -> None:
        self.log.write(event, self.driver)

    @property
    def _capacity(self) -> int:
        return self.scenario.prompts_per_step * (self.scenario.bound + 1)

    def _dispatch(self) -> None:
        state = self.state
        if state.retry:
            prompt, attempt = state.retry.pop(0)
        else:
            prompt, attempt = state.next_prompt, 0
            state.next_prompt += 1
        rows = [ModelRow(100 * attempt) for _ in range(self.scenario.group_size)]
        group = ModelGroup(self._name(prompt, attempt), prompt, attempt, rows)
        state.flight.append(group)
        state.dispatched += 1
        self._write(
            PromptDispatched(
                group_id=group.group_id, prompt_id=f"p{prompt}", attempt=attempt,
                step=state.step + 1, version=state.step,
            )
        )  # fmt: skip

    def _progress(self) -> None:
        group = self.random.choice(self.state.flight)
        number = self.random.randrange(len(group.rows))
        row = group.rows[number]
        where = {"group_id": group.group_id, "row": number, "attempt": row.attempt}
        if row.state in {"new", "cut"}:
            row.engine = self.random.randrange(len(self.engines))
            row.first = row.first if row.state == "cut" else self.state.step
            row.last = self.state.step
            row.state = "running"
            self.log.write(
                RolloutStarted(**where, weight_version=row.last, engine=f"e{row.engine}"),
                self.engines[row.engine],
            )
        elif row.state == "running":
            self._end_row(row, where)
        elif row.state == "finished":
            row.state = "rewarded"
            output = f"{group.group_id}/{number}/{row.attempt}"
            row.unrewarded = self._chance(self.scenario.unrewarded)
            if row.unrewarded:
                cause = RewardFailureCause.RAISED
                self.log.write(RewardFailed(**where, cause=cause, output=output), REWARD)
            else:
                reward = _reward(group, number)
                self.log.write(RewardComputed(**where, reward=reward, output=output), REWARD)
        if all(row.state == "rewarded" for row in group.rows):
            self._commit(group)

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def _end_row(self, row: ModelRow, where: dict[str, object]) -> None:
        source = self.engines[row.engine]
        tokens = self.random.randint(1, 20)
        self.log.write(Segment(**where, weight_version=row.last, tokens=tokens), source)
        if self.random.random() < self.scenario.failures:
            self.log.write(RolloutFailed(**where, cause=DropCause.INFRA_FAILURE), source)
            row.state, row.attempt = "new", row.attempt + 1
        else:
            output = f"{where['group_id']}/{where['row']}/{where['attempt']}"
            row.state = "finished"
            self.log.write(RolloutFinished(**where, output=output, tokens=tokens), source)

    def _commit(self, group: ModelGroup) -> None:
        self.state.flight.remove(group)
        if self.random.random() < self.scenario.filters:
            self.state.flight.append(group)
            self._drop(group, DropCause.FILTERED_UNIFORM)
            self.state.retry.append((self.state.next_prompt, 0))
            self.state.next_prompt += 1
            return
        if len(group.rewarded) < min(2, len(group.rows)):
            self.state.flight.append(group)
            self._drop(group, DropCause.REWARD_FAILURE)
            self.state.retry.append((group.prompt, group.attempt + 1))
            return
        keys = [f"{group.group_id}_{number}" for number in range(len(group.rows))]
        self._call("put", keys)
        self.state.ready.append(group)
        self._write(
            Committed(
                group_id=group.group_id, rows=list(range(len(group.rows))),
                start_version=min(row.first for row in group.rows),
                end_version=max(row.last for row in group.rows),
                rewards=[
                    None if row.unrewarded else _reward(group, number)
                    for number, row in enumerate(group.rows)
                ],
            )
        )  # fmt: skip

    def _evict(self) -> None:
        for group in [*self.state.ready, *self.state.flight]:
            if self.state.step - group.first > self.scenario.bound:
                late = group in self.state.flight
                self._drop(group, DropCause.ABORTED_STALE if late else DropCause.STALE)
                self.state.retry.append((group.prompt, group.attempt + 1))

    def _drop(self, group: ModelGroup, cause: DropCause) -> None:
        state = self.state
        if group in state.ready:
            state.ready.remove(group)
            self._call("clear", [f"{group.group_id}_{n}" for n in range(len(group.rows))])
            self._write(Cleared(group_id=group.group_id))
        else:
            state.flight.remove(group)
        state.dropped += 1
        self._write(Dropped(group_id=group.group_id, cause=cause))

    def _running(self) -> list[tuple[ModelGroup, int, ModelRow]]:
        return [
            (group, number, row)
            for group in self.state.flight
            for number, row in enumerate(group.rows)
            if row.state == "running"
        ]

    def _call(self, op: str, keys: list[str]) -> None:
        if self.scenario.plane:
            self.calls += 1
            partition = f"train-{self.driver.incarnation}"  # a plane ends with its driver
            for status in ("invoked", "ok"):
                returned = keys if status == "invoked" or op in {"get", "claim"} else None
                self._write(
                    PlaneOp(
                        op=op, op_id=self.calls, status=status, partition=partition, keys=returned
                    )
                )


def _reward(group: ModelGroup, number: int) -> float:
    return float((group.prompt + number) % 3)
