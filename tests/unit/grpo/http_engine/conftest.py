"""Servers of ``fixtures/servers`` that generate with tiny Llama, and engines that use them."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rlconform.grpo.config import GenerationConfig
from rlconform.grpo.generation import Prompts, Responses, Sampling, ShouldStop, never_stop
from rlconform.grpo.generation.http_engine import HTTPEngine
from rlconform.grpo.models import load_model

_SERVER = Path(__file__).parents[4] / "fixtures/servers/tiny_completions.py"


def _server_class() -> Any:
    # Another name than the file's: pytest rewrites modules of that name if a test starts it anew.
    spec = importlib.util.spec_from_file_location("server_of_the_tests", _SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.TinyCompletions


@pytest.fixture
def serve() -> Iterator[Callable[[], Any]]:
    """Start servers; they end with the test."""
    started: list[Any] = []
    make = _server_class()

    def start() -> Any:
        server = make(seed=len(started))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.fixture
def connect() -> Iterator[Callable[..., HTTPEngine]]:
    """Make an engine of servers, which have weights of version 0 from then on."""
    engines: list[HTTPEngine] = []

    def make(*servers: Any, **options: Any) -> HTTPEngine:
        values = {"backoff_s": 0.01, "read_timeout_s": 30.0, "endpoints": [s.url for s in servers]}
        config = GenerationConfig(backend="http", max_new_tokens=8, http={**values, **options})
        assert config.http is not None
        engine = HTTPEngine(config.http)
        engines.append(engine)
        engine.refit(weights(0), 0)
        return engine

    yield make
    for engine in engines:
        engine.close()


def weights(seed: int) -> dict[str, torch.Tensor]:
    return load_model("tiny-llama", precision="float32", seed=seed).state_dict()


def generate(
    engine: Any,
    *,
    rows: int = 1,
    tokens: int = 8,
    greedy: bool = False,
    stops: tuple[int, ...] = (),
    should_stop: ShouldStop = never_stop,
    **options: Any,
) -> Responses:
    """Generate ``rows`` responses of ``tokens`` tokens; without ``stops`` none ends earlier."""
    prompts = Prompts.of([torch.tensor([3, 9, 8 + row, 4]) for row in range(rows)], 0)
    sampling = Sampling(tokens, stops, greedy=greedy)
    result: Responses = engine.generate(
        prompts, list(range(rows)), sampling, should_stop=should_stop, **options
    )
    return result
