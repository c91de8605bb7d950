"""Executors over the runners of ``executor_play``, and clients that ask them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rlconform.grpo.rewards.batching_executor import BatchingExecutor
from rlconform.grpo.simulation.executor_play import ScriptedAnswer, ScriptedRunner

Outcome = ScriptedAnswer | BaseException


def executor(
    runners: Sequence[ScriptedRunner],
    *,
    size: int = 4,
    wait_ms: float = 10.0,
    queue: int = 100,
    batches_per_runner: int = 2,
) -> BatchingExecutor[int, ScriptedAnswer]:
    """Open an executor over the runners."""
    return BatchingExecutor(
        runners,
        max_batch_size=size,
        max_wait_ms=wait_ms,
        max_queue=queue,
        is_answer=lambda request, answer: request == answer[0],
        batches_per_runner=batches_per_runner,
    )


async def ask(opened: BatchingExecutor[int, ScriptedAnswer], request: int) -> ScriptedAnswer:
    return await (await opened.submit(request))


async def ask_all(
    opened: BatchingExecutor[int, ScriptedAnswer], requests: Sequence[int]
) -> list[Outcome]:
    return await asyncio.gather(*(ask(opened, each) for each in requests), return_exceptions=True)


def now() -> float:
    return asyncio.get_running_loop().time()
