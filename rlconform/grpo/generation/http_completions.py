"""Requests and answers of ``POST /v1/completions``: token ids in, token ids and logprobs out.

    prompt and tokens so far ── request_body ──▶ server ── one event per few tokens ──▶ parse_event

The API is OpenAI's, with four fields that vLLM adds: ``prompt`` as token ids, ``stop_token_ids``,
``seed`` and ``return_token_ids`` (vLLM 0.10.2 and later). Text is never encoded again, because
decoding and encoding could change the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from rlconform.grpo.generation.base import Sampling

#: Prefix of the lines that have an event, and the line after the last event.
DATA, DONE = "data:", "[DONE]"


class BadCompletion(ConnectionError):
    """A server's answer isn't a completion; another server may give a right one."""


class RequestRefused(RuntimeError):
    """A server refuses the request (4xx); another try would be refused too."""


@dataclass(frozen=True)
class TokenChunk:
    """A few tokens of one response, in order."""

    token_ids: list[int]
    logprobs: list[float]  # of the distribution that was sampled from, one per token
    finish_reason: str | None  # ``stop``, ``length``, or None if more tokens come


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float]


class _Choice(msgspec.Struct):
    token_ids: list[Annotated[int, msgspec.Meta(ge=0)]]
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice]


_DECODER = msgspec.json.Decoder(_Event)


def request_body(
    model: str, token_ids: Sequence[int], seed: int, sampling: Sampling, had: int
) -> dict[str, object]:
    """Build the request of a response that has ``had`` tokens already.

    ``token_ids`` are the prompt's and those of the response so far. A server draws anew from its
    seed in each request, so a response that goes on gets another seed: else its draws would repeat.
    """
    return {
        "model": model,
        "prompt": list(token_ids),
        "max_tokens": sampling.max_new_tokens - had,
        "temperature": 0.0 if sampling.greedy else sampling.temperature,
        "stop_token_ids": list(sampling.stop_token_ids),
        "seed": (seed + had) % 2**63,
        "logprobs": 0,  # only those of the sampled tokens
        "return_token_ids": True,
        "stream": True,
    }


def parse_event(line: str) -> TokenChunk | None:
    """Read a line of the stream; None for a line without an event.

    Raises:
        BadCompletion: The line is not an event of one choice with as many logprobs as tokens.
    """
    if not line.startswith(DATA):
        return None
    text = line.removeprefix(DATA).strip()
    if text == DONE:
        return None
    try:
        event = _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise BadCompletion(
            f"expected a completion with token_ids; got {text[:200]!r} ({error}). vLLM sends "
            f"token_ids since 0.10.2"
        ) from error
    if len(event.choices) != 1:
        raise BadCompletion(f"expected one choice; got {len(event.choices)} in {text[:200]!r}")
    choice = event.choices[0]
    logprobs = choice.logprobs.token_logprobs if choice.logprobs is not None else []
    if len(logprobs) != len(choice.token_ids):
        raise BadCompletion(
            f"expected a logprob per token; got {len(choice.token_ids)} tokens and "
            f"{len(logprobs)} logprobs"
        )
    return TokenChunk(choice.token_ids, logprobs, choice.finish_reason)
