"""``CallerInMode`` makes the calls of a long run as other code around them would.

    run's thread ── call ──▶ CallerInMode ──┬─▶ here, perhaps under inference mode or in a loop
                 ◀─ waits for the result ───┴─▶ in one of its threads, which the run chooses

What a plane keeps for each thread, or takes from torch's modes, shows only if calls differ in them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Literal

import torch
from tensordict import TensorDictBase

from rlconform.contract import CLIENT_METHODS, DataPlaneClient
from rlconform.wire.leaves import is_jagged

#: How a run makes its calls: as they are, each in one of some threads, puts of dense columns under
#: ``torch.inference_mode`` (torch itself does little with jagged ones there), or each while an
#: event loop runs in the thread.
Mode = Literal["here", "threads", "inference", "loop"]
#: Threads of a run; a plane may keep something for as many as it has cores.
THREADS = (3, 3, 12)


class CallerInMode:
    """A client whose calls the run's thread makes in a mode; other threads make them directly.

    ``rng`` chooses the thread of a call. ``close`` ends the threads, and not the client.
    """

    def __init__(self, client: DataPlaneClient, mode: Mode, rng: Random) -> None:
        self._client, self._rng, self._mode = client, rng, mode
        self._main = threading.get_ident()
        n = rng.choice(THREADS) if mode == "threads" else 0
        self._last_end = 0.0  # of the newest call in one of the threads
        self._threads = [ThreadPoolExecutor(1, f"run-{each}") for each in range(n)]
        for method in CLIENT_METHODS:
            if method != "close":
                setattr(self, method, self._in_mode(method, getattr(client, method)))

    def __getattr__(self, name: str) -> Any:
        """Return what else the client has, such as its recording."""
        return getattr(self._client, name)

    @property
    def last_end(self) -> float:
        """When this thread's last call ended, also where one of the run's threads made it."""
        in_threads = self._mode == "threads" and threading.get_ident() == self._main
        return self._last_end if in_threads else self._client.last_end  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the threads; a call that still runs keeps its own."""
        for each in self._threads:
            each.shutdown(wait=False)

    def _in_mode(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def in_loop(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        def under_inference_mode(*args: Any, **kwargs: Any) -> Any:
            with torch.inference_mode(not has_jagged(kwargs["fields"])):
                return call(*args, **kwargs)

        def in_a_thread(*args: Any, **kwargs: Any) -> Any:
            try:
                return self._rng.choice(self._threads).submit(call, *args, **kwargs).result()
            finally:
                self._last_end = time.monotonic()

        def here(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        modes: dict[Mode, Callable[..., Any]] = {
            "here": here,
            "threads": in_a_thread,
            "inference": under_inference_mode if method == "put_samples" else here,
            "loop": lambda *args, **kwargs: asyncio.run(in_loop(*args, **kwargs)),
        }

        def made(*args: Any, **kwargs: Any) -> Any:
            how = modes[self._mode] if threading.get_ident() == self._main else call
            return how(*args, **kwargs)

        return made


def has_jagged(batch: TensorDictBase | None) -> bool:
    """Whether a column of the batch is nested."""
    leaves = [] if batch is None else batch.values()
    return any(isinstance(leaf, torch.Tensor) and is_jagged(leaf) for leaf in leaves)
