"""``RewardWorker``: a Ray actor with a whole reward model.

    driver          ── build ───────▶ worker
    rollout worker  ── score(rows) ─▶ worker ── scores ──▶ rollout worker
                    ── sleep, wake ─▶

The worker runs one call at a time, in the order in which they arrive. It writes each batch into the
event log before it scores it, so the log shows which rows a worker had when it died.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil

from rlconform.events.schema import ScoringFinished, ScoringStarted
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.events_actor import EventsActor
from rlconform.grpo.rewards.reward_model import RewardModel, RowScore, RowToScore
from rlconform.grpo.workers.determinism import make_deterministic


class RewardWorker(EventsActor):
    """One of ``reward_model.dp_size`` workers, on ``cpu`` or the first visible GPU."""

    event_role = "reward"

    def __init__(self, device: str) -> None:
        self._device = device
        self._model: RewardModel | None = None

    def build(self, config: MasterConfig) -> None:
        """Load the run's reward model, which replaces that of a previous run."""
        make_deterministic(config.grpo.seed)
        self._model = None
        self._model = RewardModel(config.reward_model.model_name, config.grpo.seed, self._device)

    @property
    def model(self) -> RewardModel:
        """The reward model; ``RuntimeError`` before ``build``."""
        if self._model is None:
            raise RuntimeError("call build first")
        return self._model

    def score(self, rows: Sequence[RowToScore]) -> list[RowScore]:
        """Score rows, see ``RewardModel.score``."""
        self.write_event(ScoringStarted(sample_ids=[row.sample_id for row in rows]))
        scores: list[RowScore] = []
        try:
            scores = self._scores(rows)
        finally:
            self.write_event(ScoringFinished(scored=len(scores)))
        return scores

    def _scores(self, rows: Sequence[RowToScore]) -> list[RowScore]:
        return self.model.score(rows)

    def sleep(self) -> int:
        """Let the model rest, see ``RewardModel.sleep``."""
        return self.model.sleep()

    def wake(self) -> None:
        """Bring the model back, see ``RewardModel.wake``."""
        self.model.wake()

    def usage(self) -> tuple[int, int, float]:
        """Return the bytes of weights on the device, of this process, and its seconds of CPU."""
        resident: int = psutil.Process().memory_info().rss
        return self.model.held_bytes(), resident, time.process_time()
