"""``ModelScorer``: scores rows with the reward workers, in batches.

    rollout worker, one event loop                              Ray actors
    reward loop ── score(request) ──▶ BatchingExecutor ── batch ──▶ RewardWorker 0
        ▲  waits for its own row        │ one for each          └──▶ RewardWorker 1
        └── Reward, or RewardFailure ◀──┘ rollout worker

Each rollout worker has an executor of its own, instead of one actor that all of them call. The rows
of a group end in one process at about the same time, so they fill batches there, and a batch costs
one call of an actor instead of one per row. The bounded queue makes the process wait that produces
the rows, and there is no further process whose death would end all rewards. In return, an executor
knows only its own batches when it chooses the worker with the fewest rows; a worker has at most
``BATCHES_PER_WORKER`` batches of each rollout worker, so that one is there when another ends.
"""

from __future__ import annotations

from math import isfinite

from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.config import RewardModelConfig
from rlconform.grpo.failures import RewardFailure, WorkerLost
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rewards.batch_runner import BatchingError, NoRunnerLeft
from rlconform.grpo.rewards.batching_executor import BatchingExecutor
from rlconform.grpo.rewards.reward_model import RowScore, RowToScore
from rlconform.grpo.rewards.reward_workers import RewardWorkers

#: Batches that a reward worker has of one rollout worker: one that it runs, and the next one.
BATCHES_PER_WORKER = 2


class ModelScorer(RewardScorer):
    """Scores rows with a reward model; all calls come from one event loop."""

    def __init__(self, workers: RewardWorkers, options: RewardModelConfig) -> None:
        self._executor = BatchingExecutor[RowToScore, RowScore](
            workers.runners(),
            max_batch_size=options.max_batch_size,
            max_wait_ms=options.max_wait_ms,
            max_queue=options.max_queue,
            is_answer=_is_score_of,
            batches_per_runner=BATCHES_PER_WORKER,
        )

    async def score(self, request: RewardRequest) -> Reward:
        """Return the model's score of a row.

        Raises:
            RewardFailure: The row is too long, the model raised for it alone,
                or its score isn't finite; or the scorer is closed.
            WorkerLost: All reward workers are lost, so that no further row can be scored.
        """
        row = RowToScore.of(request)
        try:
            score = await (await self._executor.submit(row))
        except NoRunnerLeft as error:
            raise WorkerLost(f"no reward worker is left: {error}") from error
        except BatchingError as error:
            raise RewardFailure(
                f"{row.sample_id!r} has no score: {error}", cause=RewardFailureCause.UNAVAILABLE
            ) from error
        if not isfinite(score.value):
            raise RewardFailure(
                f"{row.sample_id!r} has the score {score.value}",
                cause=RewardFailureCause.NOT_FINITE,
            )
        return Reward(score.sample_id, score.attempt, score.value)

    async def close(self) -> None:
        """Answer the rows that are queued, and refuse others. Idempotent."""
        await self._executor.close()


def _is_score_of(row: RowToScore, score: RowScore) -> bool:
    return (row.sample_id, row.attempt) == (score.sample_id, score.attempt)
