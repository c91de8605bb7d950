"""``EndpointRouter``: sends each request to the server with the fewest, and avoids lost ones.

    row ── lend(version) ──▶ the server with these weights, without a recent failure, and with the
                             fewest requests; its failure is noted when the block raises

A server that missed a weight update has other weights than the rest, so it gets no request until a
later update reaches it. Nobody waits here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from rlconform.grpo.generation.base import TellFailure

#: Characters of an error that are kept.
_LONGEST_REASON = 200


@dataclass
class Endpoint:
    """A server and what is known of it."""

    url: str
    version: int | None = None  # of its weights; None if it is not known
    outstanding: int = 0  # requests that are open
    down_until: float = 0.0  # before this time others are preferred
    tell: TellFailure = lambda _url, _why: None  # gets each failure that is new

    def failed(self, error: BaseException) -> None:
        """Tell that the server has failed a request, or has not taken new weights."""
        self.tell(self.url, f"{type(error).__name__}: {error}"[:_LONGEST_REASON])


class NoEndpoint(ConnectionError):
    """No server has the weights that are asked for."""


class EndpointRouter:
    """The servers of an engine; for one event loop."""

    def __init__(
        self,
        urls: Sequence[str],
        cooldown_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoints = [Endpoint(url.rstrip("/")) for url in urls]
        self._cooldown_s, self._clock = cooldown_s, clock

    @contextmanager
    def lend(self, version: int) -> Iterator[Endpoint]:
        """Lend the best server with weights of this version for one request.

        If all of them failed lately, the one whose failure is the oldest is tried again.

        Raises:
            NoEndpoint: No server has these weights.
        """
        now = self._clock()
        fitting = [each for each in self.endpoints if each.version == version]
        if not fitting:
            held = {each.url: each.version for each in self.endpoints}
            raise NoEndpoint(f"expected a server with weights of version {version}; got {held}")
        endpoint = min(fitting, key=lambda each: (max(each.down_until - now, 0), each.outstanding))
        endpoint.outstanding += 1
        try:
            yield endpoint
        except (httpx.TransportError, httpx.HTTPStatusError, ConnectionError) as error:
            if endpoint.down_until <= self._clock():  # else it is known by another request
                endpoint.failed(error)
            endpoint.down_until = self._clock() + self._cooldown_s
            raise
        finally:
            endpoint.outstanding -= 1
