"""``FrameworkModel``: a small asynchronous GRPO framework that writes the log of a right run.

It dispatches prompts behind a gate, generates, fails and tries again, drops what is too old,
trains, syncs weights, saves checkpoints, crashes and resumes; a random generator chooses what comes
next.
"""

from __future__ import annotations

from copy import deepcopy

from rlconform.events.schema import (
    CheckpointSaved,
    Cleared,
    DropCause,
    EventSource,
    Feature,
    GroupCounts,
    Idle,
    IdleCause,
    ProcessLost,
    Record,
    Resumed,
    RolloutAborted,
    RolloutPaused,
    RolloutResumed,
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

from .model_generation import ModelGeneration
from .scenario import ModelGroup, Scenario


class FrameworkModel(ModelGeneration):
    """Runs a scenario; ``records`` has the log."""

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

    def _declare(self) -> None:
        s = self.scenario
        features = [Feature.REWARD, Feature.SYNC, *([Feature.PLANE] if s.plane else [])]
        self._write(
            RunStarted(
                group_size=s.group_size, prompts_per_step=s.prompts_per_step, steps=s.steps,
                final_sync=True,
                staleness=StalenessBound(definition=StalenessDefinition.START, bound=s.bound),
                mixed_versions=s.sync != "drain", prompts_once=True,
                capacity=self._capacity, rollout_deadline_s=1000, step_deadline_s=1000,
                features=features,
            )
        )  # fmt: skip

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
        left = state.step < self.scenario.steps
        if left and len(state.ready) >= self.scenario.prompts_per_step:
            actions += [self._train] * 2
        self.random.choice(actions or [self._wait])()

    def _wait(self) -> None:
        self._write(Idle(who="trainer", seconds=0.001, cause=IdleCause.NO_READY_GROUPS))

    def _name(self, prompt: int, attempt: int) -> str:
        again = attempt and not self.scenario.same_names
        return f"g{prompt}-r{attempt}" if again else f"g{prompt}"

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


def right_run(scenario: Scenario) -> list[Record]:
    """The log of a run without a defect."""
    return FrameworkModel(scenario).run().records
