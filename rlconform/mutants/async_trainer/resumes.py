"""Restarts that lose prompts, repeat them, or count wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.checkpoint import SavedRun, next_attempts
from rlconform.grpo.replay.slots import SavedGroup
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.grpo.trainers.async_controller import AsyncController
from rlconform.mutants.async_trainer.defect import trainer_defect

_RESTART = Scenario(sampler="ready_first", restarts=(3,))
_WITHOUT_ROWS = replace(_RESTART, options={"checkpoint_rows": False})


@trainer_defect(
    "resume", evidence="got neither", seen="NeMo-RL#4067, OpenRLHF#1322", when=_WITHOUT_ROWS,
    may="liveness",
)  # fmt: skip
class BufferedGroupsLost(SavedRun):
    """Leaves the ready groups out of the checkpoint, and their prompts too."""

    def without_rows(self) -> SavedRun:
        return replace(self, groups=[])


@trainer_defect(
    "resume", evidence="to hold every open group", seen="verl#7759", when=_RESTART,
    may="liveness",
)  # fmt: skip
class CheckpointForgetsInFlight(AsyncController):
    """Saves ready groups alone; what is being generated is lost."""

    def saved(self) -> SavedRun:
        return replace(super().saved(), unfinished=[])

    def note_checkpoint(self, *, with_rows: bool) -> None:
        ready = [group.prompt.group_id for group in self.saved().groups]
        self.buffer.events.checkpoint_saved(self.version, ready, [], self.buffer.fates)


@trainer_defect(
    "resume", evidence="got neither", seen="verl#7759, OpenRLHF#1322", when=_RESTART,
    may="liveness",
)  # fmt: skip
class InFlightPromptsSkipped(AsyncController):
    """Goes on with new prompts, and leaves out those that were in flight at the checkpoint."""

    def restore(self, saved: SavedRun) -> None:
        super().restore(replace(saved, unfinished=[]))


@trainer_defect(
    "exactly_once", evidence="to be trained on once", seen="verl#7759, verl#7762", when=_RESTART,
)  # fmt: skip
class ReadyPromptsIssuedAgain(AsyncController):
    """Generates the prompts of ready groups once more after a restart, and keeps both."""

    def restore(self, saved: SavedRun) -> None:
        super().restore(saved)
        again = [group.prompt for group in saved.groups]
        self.pump.queue._again.extend(next_attempts(again))


@trainer_defect(
    "accounting", evidence="groups that no step has taken", seen="verl#7759, AReaL#1388",
    when=Scenario(sampler="windowed", restarts=(3,), options={"max_inflight_prompts": 12}),
)  # fmt: skip
class RestoredGroupsTakeNoSlots(ReplayBuffer):
    """Doesn't count restored groups among those that wait, so the window is overfilled."""

    def load_state_dict(self, groups: Sequence[SavedGroup]) -> None:
        super().load_state_dict(groups)
        self.capacity += 4


@trainer_defect(
    "accounting", evidence="expected trained = ", seen="AReaL#1396, AReaL#1388", when=_RESTART
)
class CountedFromNullAfterResume(AsyncController):
    """Begins to count the groups anew after a restart."""

    def restore(self, saved: SavedRun) -> None:
        super().restore(saved)
        self.buffer.fates.clear()
