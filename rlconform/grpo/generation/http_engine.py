"""``HTTPEngine``: generates with servers that speak OpenAI's API, such as vLLM's.

    thread of a group ── generate ──▶ one task per row ── POST, stream ──▶ server (``http_router``)
         waits, asks should_stop         │  lost or 5xx: another server, from the tokens so far
                                         │  stopped: the stream is closed, the row is cut
    thread of a refit ── pause ──▶ closes all streams, waits for the rows to rest ──▶ every server
                                   reads the weights ──▶ rows go on, with the new version

All tasks run in one event loop in a thread of its own. A stream is closed before the weights change
and opened again after it, so each token has exactly one version, although servers don't name any.
Closing a stream aborts its request, on vLLM as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import httpx
import torch
from torch import Tensor

from rlconform.grpo.config.infrastructure import HTTPGenerationConfig
from rlconform.grpo.generation.base import (
    GenerationEngine,
    OnFinished,
    Prefix,
    Prompts,
    Responses,
    Sampling,
    ShouldStop,
    TellFailure,
)
from rlconform.grpo.generation.http_completions import (
    BadCompletion,
    RequestRefused,
    parse_event,
    request_body,
)
from rlconform.grpo.generation.http_router import EndpointRouter
from rlconform.grpo.generation.http_weights import WeightFiles
from rlconform.grpo.generation.stream_gate import StreamGate
from rlconform.grpo.loop_thread import LoopThread

#: Seconds between two questions to ``should_stop``, which can only be asked.
_POLL_S = 0.02
#: Statuses below 500 after which the same request may succeed: a timeout, and too many requests.
_RETRIED = frozenset({408, 429})


class HTTPEngine(GenerationEngine):
    """Generates with the servers of ``generation.http.endpoints``.

    The servers get their weights at the first ``refit``. Draws are the servers' own: they depend on
    the row's seed and, after an interruption, on the number of its tokens.
    """

    def __init__(self, options: HTTPGenerationConfig) -> None:
        super().__init__()
        self._options = options
        self._router = EndpointRouter(options.endpoints, options.cooldown_s)
        self._weights = WeightFiles(options)
        self._gate = StreamGate()
        self._loop = LoopThread("http-engine")
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(options.read_timeout_s, connect=options.connect_timeout_s),
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        )

    def watch_servers(self, tell: TellFailure) -> None:
        """Call ``tell`` when a server fails requests, or does not take new weights."""
        for endpoint in self._router.endpoints:
            endpoint.tell = tell

    def refit(self, weights: Mapping[str, Tensor], version: int) -> str:
        """Close the streams, replace the weights on all servers, and let rows go on.

        Raises:
            ValueError: The version is below ``weight_version``.
            ServersLost: No server has read the weights.
        """
        self._refit_to = version
        self._loop.run(self._gate.close())
        try:
            return super().refit(weights, version)
        finally:
            self._loop.run(self._gate.open())

    def close(self) -> None:
        """Close connections and the event loop. Idempotent."""
        if self._loop.alive:
            self._loop.run(self._client.aclose())
            self._loop.close()

    def _generate(
        self,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        prefixes: Sequence[Prefix],
        should_stop: ShouldStop,
        on_finished: OnFinished,
    ) -> Responses:
        lengths = prompts.lengths.tolist()
        columns = zip(prompts.input_ids, lengths, seeds, prefixes, strict=True)
        rows = [_Row(ids[:length].tolist(), seed, old) for ids, length, seed, old in columns]
        if not should_stop():
            self._run_rows(rows, sampling, should_stop, on_finished)
        return _responses(rows)

    def _run_rows(
        self,
        rows: Sequence[_Row],
        sampling: Sampling,
        should_stop: ShouldStop,
        on_finished: OnFinished,
    ) -> None:
        """Generate rows in the event loop, and report each in this thread when it is finished."""
        stop, ended = asyncio.Event(), SimpleQueue[int | None]()
        future = self._loop.start(self._generate_rows(rows, sampling, stop, ended.put))
        future.add_done_callback(lambda _: ended.put(None))
        try:
            while (number := self._next(ended, stop, should_stop)) is not None:
                row = rows[number]
                on_finished(number, row.response(), row.finish_reason == "length")
        finally:
            self._loop.call(stop.set)
            future.result()

    def _next(
        self, ended: SimpleQueue[int | None], stop: asyncio.Event, should_stop: ShouldStop
    ) -> int | None:
        """Return the next row that ended, or None after the last; set ``stop`` if told to."""
        while True:
            try:
                return ended.get(timeout=_POLL_S)
            except Empty:
                if should_stop():
                    self._loop.call(stop.set)

    def _load_weights(self, weights: Mapping[str, Tensor]) -> str:
        """Let all servers read the weights; one that doesn't gets no request until it has."""
        endpoints, version = self._router.endpoints, self._refit_to
        return self._loop.run(self._weights.send(self._client, endpoints, weights, version))

    async def _generate_rows(
        self,
        rows: Sequence[_Row],
        sampling: Sampling,
        stop: asyncio.Event,
        ended: Callable[[int], None],
    ) -> None:
        """Generate all rows at once; the first error ends the others and is raised."""

        async def generate(number: int, row: _Row) -> None:
            await self._generate_row(row, sampling, stop)
            if row.finish_reason is not None:
                ended(number)

        try:
            async with asyncio.TaskGroup() as tasks:
                for number, row in enumerate(rows):
                    tasks.create_task(generate(number, row))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _generate_row(self, row: _Row, sampling: Sampling, stop: asyncio.Event) -> None:
        """Generate a row, over failures and weight updates, until it has ended or is stopped."""
        failures = 0
        while row.finish_reason is None and not stop.is_set():
            had = len(row)
            try:
                await self._gate.run(lambda: self._stream(row, sampling), stop)
            except (httpx.TransportError, httpx.HTTPStatusError, ConnectionError) as error:
                failures = 1 if len(row) > had else failures + 1
                if failures > self._options.max_retries:
                    raise ConnectionError(
                        f"expected one of {self._options.endpoints} to go on with a response of "
                        f"{len(row)} tokens; {failures} tries failed, the last with "
                        f"{type(error).__name__}: {error}"
                    ) from error
                await asyncio.sleep(self._options.backoff_s * 2 ** (failures - 1))

    async def _stream(self, row: _Row, sampling: Sampling) -> None:
        """Add the tokens of one request to the row; ``BadCompletion`` if they end too early."""
        version = self.weight_version
        body = request_body(self._options.model, row.token_ids, row.seed, sampling, len(row))
        with self._router.lend(version) as endpoint:
            url = f"{endpoint.url}/v1/completions"
            async with self._client.stream("POST", url, json=body) as answer:
                await _check_status(answer)
                async for line in answer.aiter_lines():
                    if (chunk := parse_event(line)) is not None:
                        row.add(chunk.token_ids, chunk.logprobs, version)
                        row.finish_reason = chunk.finish_reason
            if row.finish_reason not in {"stop", "length"}:
                reason, row.finish_reason = row.finish_reason, None
                raise BadCompletion(f"{url} ended a stream with finish_reason {reason}")


@dataclass
class _Row:
    """A response that is being generated."""

    prompt_ids: list[int]
    seed: int
    prefix: Prefix
    ids: list[int] = field(default_factory=list)  # after the prefix, as the two below
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish_reason: str | None = None  # None until a server says that the response has ended

    def __len__(self) -> int:
        return len(self.prefix) + len(self.ids)

    @property
    def token_ids(self) -> list[int]:
        """The prompt and the response so far."""
        return [*self.prompt_ids, *self.prefix.token_ids.tolist(), *self.ids]

    def add(self, token_ids: Sequence[int], logprobs: Sequence[float], version: int) -> None:
        """Add tokens that the weights of one version made."""
        self.ids += token_ids
        self.logprobs += logprobs
        self.versions += [version] * len(token_ids)

    def response(self) -> Prefix:
        """Return all tokens of the response so far."""
        return Prefix(
            torch.cat([self.prefix.token_ids, torch.tensor(self.ids, dtype=torch.int64)]),
            torch.cat([self.prefix.logprobs, torch.tensor(self.logprobs, dtype=torch.float32)]),
            torch.cat([self.prefix.versions, torch.tensor(self.versions, dtype=torch.int64)]),
        )


def _responses(rows: Sequence[_Row]) -> Responses:
    parts = [row.response() for row in rows]
    return Responses(
        [part.token_ids for part in parts],
        [part.logprobs for part in parts],
        [part.versions for part in parts],
        torch.tensor([row.finish_reason == "length" for row in rows], dtype=torch.bool),
        torch.tensor([row.finish_reason is not None for row in rows], dtype=torch.bool),
    )


async def _check_status(answer: httpx.Response) -> None:
    """Raise for an error status: ``RequestRefused`` if another try would be refused too."""
    if answer.is_client_error and answer.status_code not in _RETRIED:
        text = (await answer.aread()).decode(errors="replace")
        raise RequestRefused(f"{answer.url} answers {answer.status_code}: {text[:500]}")
    answer.raise_for_status()
