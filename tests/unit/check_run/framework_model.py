"""``FrameworkModel``: a small asynchronous GRPO framework that writes the log of a right run.

It dispatches prompts behind a gate, generates, fails and tries again, drops what is too old,
trains, syncs weights, saves checkpoints, crashes and resumes; a random generator chooses what comes
next.
"""

from __future__ import annotations

from copy import deepcopy
from random import Random

from rlconform.events.schema import (
    CheckpointSaved,
    Cleared,
    Committed,
    DropCause,
    Dropped,
    EventSource,
    Feature,
    GroupCounts,
    Idle,
    IdleCause,
    PlaneOp,
    ProcessLost,
    PromptDispatched,
    Record,
    Resumed,
    RewardComputed,
    RewardFailed,
    RewardFailureCause,
    RolloutAborted,
    RolloutFailed,
    RolloutFinished,
    RolloutPaused,
    RolloutResumed,
    RolloutStarted,
    RunFinished,
    RunStarted,
    Segment,
    Selected,
    StalenessBound,
    StalenessDefinition,
    Trained,
    WeightsApplied,
    WeightsPublished,
)

from .log_builder import DRIVER, REWARD, LogBuilder, engine_source
from .scenario import ModelGroup, ModelRow, ModelState, Scenario


class FrameworkModel:
    """Runs a scenario; ``records`` has the log."""

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

    def run(self) -> FrameworkModel:
        """Run to the end."""
        self._declare()
        self._publish_and_apply()
        self._save()
        while self.state.step < self.scenario.steps:
            self._one_action()
        while self.state.flight or self.state.ready:
            group = (self.state.flight + self.state.ready)[0]
            self._drop(group, DropCause.SHUTDOWN)
        self._write(RunFinished(reason="completed", counts=self._counts()))
        return self

    def _write(self, event: object) -> None:
        self.log.write(event, self.driver)

    def _declare(self) -> None:
        s = self.scenario
        features = [Feature.REWARD, Feature.SYNC, *([Feature.PLANE] if s.plane else [])]
        self._write(
            RunStarted(
                group_size=s.group_size, prompts_per_step=s.prompts_per_step,
                staleness=StalenessBound(definition=StalenessDefinition.START, bound=s.bound),
                mixed_versions=s.sync != "drain", prompts_once=True,
                capacity=self._capacity, rollout_deadline_s=1000, step_deadline_s=1000,
                features=features,
            )
        )  # fmt: skip

    @property
    def _capacity(self) -> int:
        return self.scenario.prompts_per_step * (self.scenario.bound + 1)

    def _one_action(self) -> None:
        self.log.passes(self.random.random() / 10)
        self._evict()
        state, actions = self.state, []
        waiting = len(state.flight) + len(state.ready)
        gate = state.trained + waiting < self.scenario.prompts_per_step * (
            state.step + self.scenario.bound + 1
        )
        if waiting < self._capacity and (gate or state.retry):
            actions.append(self._dispatch)
        if state.flight:
            actions += [self._progress] * 4
        if len(state.ready) >= self.scenario.prompts_per_step:
            actions += [self._train] * 2
        self.random.choice(actions or [self._wait])()

    def _wait(self) -> None:
        self._write(Idle(who="trainer", seconds=0.001, cause=IdleCause.NO_READY_GROUPS))

    def _name(self, prompt: int, attempt: int) -> str:
        again = attempt and not self.scenario.same_names
        return f"g{prompt}-r{attempt}" if again else f"g{prompt}"

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

    def _choose(self) -> list[ModelGroup]:
        ready = self.state.ready
        orders = {
            "in_order": lambda group: group.prompt,
            "freshest": lambda group: -group.first,
            "weight_fifo": lambda group: group.first,
        }
        order = orders.get(self.scenario.sampler)
        ordered = sorted(ready, key=order) if order else list(ready)
        return ordered[: self.scenario.prompts_per_step]

    def _train(self) -> None:
        state, step = self.state, self.state.step + 1
        chosen = self._choose()
        for group in chosen:
            state.ready.remove(group)
            self._write(Selected(group_id=group.group_id, step=step, version=state.step))
        for group in chosen:
            keys = [f"{group.group_id}_{number}" for number in range(len(group.rows))]
            self._call("get", keys)
            numbers = group.rewarded
            for rank in range(self.scenario.ranks):
                if rows := numbers[rank :: self.scenario.ranks]:
                    self._write(
                        Trained(group_id=group.group_id, rows=rows, step=step, version=state.step)
                    )
            self._call("clear", keys)
            self._write(Cleared(group_id=group.group_id))
        state.trained += len(chosen)
        state.step = step
        self._publish_and_apply()
        self._save()
        if self.scenario.engine_dies_in_step == step and not self.engine_died:
            self._engine_dies()
        if self.scenario.crash_after_step == step and not self.crashed:
            self._crash()

    def _running(self) -> list[tuple[ModelGroup, int, ModelRow]]:
        return [
            (group, number, row)
            for group in self.state.flight
            for number, row in enumerate(group.rows)
            if row.state == "running"
        ]

    def _publish_and_apply(self) -> None:
        version, digest = self.state.step, f"w{self.state.step}"
        self._write(WeightsPublished(version=version, digest=digest))
        self._write(RolloutPaused())
        for group, number, row in self._running():
            where = {"group_id": group.group_id, "row": number, "attempt": row.attempt}
            source = self.engines[row.engine]
            if self.scenario.sync == "drain":
                self._end_row(row, where)
            elif self.scenario.sync == "abort":
                self.log.write(Segment(**where, weight_version=row.last, tokens=1), source)
                self.log.write(RolloutAborted(**where, cause=DropCause.ABORTED_SYNC), source)
                row.state = "cut"
            else:
                self.log.write(Segment(**where, weight_version=row.last, tokens=2), source)
                row.last = version
        for number, source in enumerate(self.engines):
            applied = WeightsApplied(version=version, engine=f"e{number}", digest=digest)
            self.log.write(applied, source)
        self._write(RolloutResumed())

    def _counts(self) -> GroupCounts:
        s = self.state
        return GroupCounts(
            dispatched=s.dispatched, trained=s.trained, dropped=s.dropped,
            in_flight=len(s.flight), buffered=len(s.ready),
        )  # fmt: skip

    def _save(self) -> None:
        state = self.state
        self.saved = deepcopy(state)
        self._write(
            CheckpointSaved(
                step=state.step, buffered=[group.group_id for group in state.ready],
                in_flight=[group.group_id for group in state.flight], counts=self._counts(),
            )
        )  # fmt: skip

    def _engine_dies(self) -> None:
        self.engine_died = True
        dead = self.engines[0]
        self._write(ProcessLost(lost=dead, reason="heartbeat"))
        for group, _, row in self._running():
            if row.engine == 0 and group in self.state.flight:
                self._drop(group, DropCause.INFRA_FAILURE)
                self.state.retry.append((group.prompt, group.attempt + 1))
        self.engines[0] = EventSource("rollout", 0, "host-a", 900, 1)
        version = self.state.step
        applied = WeightsApplied(version=version, engine="e0", digest=f"w{version}")
        self.log.write(applied, self.engines[0])

    def _crash(self) -> None:
        self.crashed = True
        for _ in range(self.random.randrange(30)):
            if len(self.state.ready) < self.scenario.prompts_per_step or self.random.random() < 0.5:
                self._one_action()
        old = [self.driver, *self.engines]
        self.driver = EventSource("trainer", 0, "host-a", 101, 1)
        count = len(self.engines)
        self.engines = [EventSource("rollout", n, "host-a", 950 + n, 2) for n in range(count)]
        self._declare()
        for source in old:
            self._write(ProcessLost(lost=source))
        state = deepcopy(self.saved)
        lost, state.flight = state.flight, []
        self._write(
            Resumed(
                step=state.step, restored=[group.group_id for group in state.ready],
                counts=GroupCounts(trained=state.trained),
            )
        )  # fmt: skip
        state.retry = [(g.prompt, g.attempt + 1) for g in lost] + state.retry
        state.dropped += len(lost)
        for group in state.ready:
            self._call("put", [f"{group.group_id}_{n}" for n in range(len(group.rows))])
        self.state = state
        self._publish_and_apply()

    def _call(self, op: str, keys: list[str]) -> None:
        if self.scenario.plane:
            self.calls += 1
            partition = f"train-{int(self.crashed)}"  # a plane ends with its driver
            for status in ("invoked", "ok"):
                returned = keys if status == "invoked" or op in {"get", "claim"} else None
                self._write(
                    PlaneOp(
                        op=op, op_id=self.calls, status=status, partition=partition, keys=returned
                    )
                )


def _reward(group: ModelGroup, number: int) -> float:
    return float((group.prompt + number) % 3)


def right_run(scenario: Scenario) -> list[Record]:
    """The log of a run without a defect."""
    return FrameworkModel(scenario).run().records
