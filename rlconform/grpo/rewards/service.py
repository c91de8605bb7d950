"""``ServiceScorer``: asks a reward model behind HTTP, through vLLM's pooling endpoint.

    vllm serve MODEL --runner pooling
    reward loop ── POST {base_url}/pooling ──▶ server     waits ``request_timeout_s`` per try
                ◀── 200 and the reward ─┐
                    429, 5xx, no answer ┴─ backoff, at most ``max_retries`` more tries,
                                           all of them within ``reward_loop.timeout_s``

The request is the conversation, in the form of a chat; its header ``X-Request-Id`` names the row
and the attempt, and vLLM puts it at the end of the answer's ``id``::

    {"model": "reward", "messages": [{"role": "user", "content": "3 + 4?"},
                                     {"role": "assistant", "content": "7"}]}
    {"id": "pool-train-0_g1.0", "object": "list", "model": "reward",
     "data": [{"index": 0, "object": "pooling", "data": [0.73]}], ...}

``data`` has one number, or a list of them per token, of which the last token's is the reward. What
the environment said between two turns is sent as the user's.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.config.rewards import RewardServiceConfig
from rlconform.grpo.failures import RewardFailure
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rewards.conversation import conversation
from rlconform.grpo.rewards.outcome import finite, malformed

REQUEST_ID = "X-Request-Id"
_TOO_MANY_REQUESTS, _SERVER_ERRORS = 429, 500


class ServiceScorer(RewardScorer):
    """Scores rows with a service; ``timeout_s`` bounds all tries of a row together."""

    def __init__(self, options: RewardServiceConfig, *, timeout_s: float) -> None:
        self._options, self._timeout_s = options, timeout_s
        # The bounds of asyncio hold for a whole try; those of httpx only for parts of it.
        self._client = httpx.AsyncClient(
            base_url=options.base_url, timeout=None, limits=httpx.Limits(max_connections=None)
        )

    async def score(self, request: RewardRequest) -> Reward:
        """Ask for the reward of a row, again if the service may answer then."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._score(request)
        except TimeoutError as error:
            raise RewardFailure(
                f"{self._options.base_url} gave no reward of {request.sample_id!r} within "
                f"{self._timeout_s:g} s",
                cause=RewardFailureCause.TIMEOUT,
            ) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _score(self, request: RewardRequest) -> Reward:
        for number in range(self._options.max_retries + 1):
            if number:
                await asyncio.sleep(self._options.backoff_s * 2.0 ** (number - 1))
            answer = await self._try(request)
            if isinstance(answer, httpx.Response):
                return _reward(answer, request)
            failure = answer
        raise RewardFailure(
            f"{failure}; it was the last of {number + 1} tries", cause=failure.failure_cause
        )

    async def _try(self, request: RewardRequest) -> httpx.Response | RewardFailure:
        """Return the answer, or a failure after which another try may succeed."""
        where = f"{self._options.base_url}: {request.sample_id!r}"
        try:
            async with asyncio.timeout(self._options.request_timeout_s):
                answer = await self._client.post(
                    "/pooling",
                    json={"model": self._options.model, "messages": conversation(request)},
                    headers={REQUEST_ID: request_id(request)},
                )
        except TimeoutError:
            seconds = self._options.request_timeout_s
            return RewardFailure(
                f"{where} has no answer after {seconds:g} s", cause=RewardFailureCause.TIMEOUT
            )
        except httpx.RequestError as error:  # not reached, or cut off in the middle of an answer
            text = f"{where} can't be asked: {type(error).__name__} {error}"
            return RewardFailure(text, cause=RewardFailureCause.UNAVAILABLE)
        if answer.is_success:
            return answer
        refusal = RewardFailure(
            f"{where} was answered with status {answer.status_code}: {answer.text[:200]!r}",
            cause=RewardFailureCause.UNAVAILABLE,
        )
        if answer.status_code == _TOO_MANY_REQUESTS or answer.status_code >= _SERVER_ERRORS:
            return refusal
        raise refusal


def request_id(request: RewardRequest) -> str:
    """Return the name of a row's attempt."""
    return f"{request.sample_id}.{request.attempt}"


def _reward(answer: httpx.Response, request: RewardRequest) -> Reward:
    """Read the reward; ``RewardFailure`` if the body is not one, or is that of another row."""
    try:
        body: Any = answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise malformed(
            f"expected JSON as the reward of {request.sample_id!r}; got {answer.text[:200]!r}"
        ) from error
    match body:
        case {"id": str(name), "data": [{"data": [*values]}]} if values:
            pass
        case _:
            raise malformed(
                f"expected an id and the data of one row as the reward of {request.sample_id!r}; "
                f"got {str(body)[:200]}"
            )
    if name.partition("-")[2] != request_id(request):
        raise RewardFailure(
            f"expected the answer to {request_id(request)!r}; got that to {name!r}",
            cause=RewardFailureCause.WRONG_ROW,
        )
    per_token = isinstance(values[-1], list)
    numbers = values[-1] if per_token else values
    if len(numbers) != 1:
        raise malformed(
            f"expected one number as the reward of {request.sample_id!r}; got {len(numbers)}: the "
            "model has as many labels"
        )
    return Reward(request.sample_id, request.attempt, finite(numbers[0], "the reward", request))
