"""``HTTPEngine``: tokens, logprobs and versions over HTTP are those of the model behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from rlconform.grpo.failures import ServersLost
from rlconform.grpo.generation import http_engine
from rlconform.grpo.generation.http_completions import RequestRefused, parse_event
from rlconform.grpo.generation.transformers_engine import TransformersEngine
from rlconform.grpo.models import load_model, weights_digest

from .conftest import generate, weights


@pytest.fixture
def local() -> TransformersEngine:
    """The model of the servers, in this process."""
    return TransformersEngine(load_model("tiny-llama", precision="float32", seed=0))


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set when the engine reads the first tokens; what they are added to has them then."""
    event = threading.Event()

    def parse(line: str) -> Any:
        chunk = parse_event(line)
        if chunk is not None:
            event.set()
        return chunk

    monkeypatch.setattr(http_engine, "parse_event", parse)
    return event


def test_greedy_responses_are_those_of_the_model(
    serve: Callable[[], Any], connect: Callable[..., Any], local: TransformersEngine
) -> None:
    stops = tuple(range(2, 8))
    expected = generate(local, rows=5, tokens=30, greedy=True, stops=stops)
    got = generate(connect(serve(), serve()), rows=5, tokens=30, greedy=True, stops=stops)
    assert [row.tolist() for row in got.token_ids] == [row.tolist() for row in expected.token_ids]
    assert got.truncated.tolist() == expected.truncated.tolist()
    assert got.finished.all()
    for one, other in zip(got.logprobs, expected.logprobs, strict=True):
        torch.testing.assert_close(one, other)


def test_a_refit_gives_the_digest_and_later_tokens_of_the_new_weights(
    serve: Callable[[], Any], connect: Callable[..., Any], local: TransformersEngine
) -> None:
    engine = connect(serve(), serve())
    assert engine.refit(weights(5), 1) == weights_digest(weights(5))
    local.refit(weights(5), 1)
    expected, got = (generate(each, rows=4, greedy=True) for each in (local, engine))
    assert [row.tolist() for row in got.token_ids] == [row.tolist() for row in expected.token_ids]
    assert got.weight_version == 1


def test_a_refit_interrupts_streams_and_each_token_has_the_version_that_made_it(
    serve: Callable[[], Any],
    connect: Callable[..., Any],
    local: TransformersEngine,
    received: threading.Event,
) -> None:
    server = serve()
    engine = connect(server)
    go_on = threading.Event()
    server.before_event = lambda number: go_on.wait() if number else None
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(generate, engine, tokens=9, greedy=True)
        assert received.wait(60)
        engine.refit(weights(5), 1)  # does not wait for the stream
        go_on.set()
        got = running.result()
    versions = got.versions[0].tolist()
    assert versions == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    before = generate(local, tokens=3, greedy=True)
    local.refit(weights(5), 1)
    expected = generate(local, tokens=9, greedy=True, prefixes=[before.prefix(0)])
    assert got.token_ids[0].tolist() == expected.token_ids[0].tolist()
    torch.testing.assert_close(got.logprobs[0], expected.logprobs[0])


def test_a_stopped_row_keeps_its_tokens_and_another_engine_goes_on(
    serve: Callable[[], Any], connect: Callable[..., Any], received: threading.Event
) -> None:
    server, other = serve(), serve()
    engine = connect(server)
    whole = generate(engine, tokens=9, greedy=True)
    release = threading.Event()
    received.clear()
    server.before_event = lambda number: release.wait() if number else None
    cut = generate(engine, tokens=9, greedy=True, should_stop=received.is_set)
    release.set()
    assert not cut.finished.any()
    assert cut.token_ids[0].tolist() == whole.token_ids[0].tolist()[:3]
    rest = generate(connect(other), tokens=9, greedy=True, prefixes=[cut.prefix(0)])
    assert rest.token_ids[0].tolist() == whole.token_ids[0].tolist()
    assert server.wait_for("ended", 2)  # the server has ended the aborted request too


def test_a_response_goes_on_at_another_server_after_its_own_is_lost(
    serve: Callable[[], Any], connect: Callable[..., Any]
) -> None:
    first, second = serve(), serve()
    engine = connect(first, second)
    expected = generate(engine, tokens=9, greedy=True)
    first.faults.append(("cut", 2))
    got = generate(engine, tokens=9, greedy=True)
    assert got.token_ids[0].tolist() == expected.token_ids[0].tolist()
    assert first.counts["/v1/completions"] + second.counts["/v1/completions"] == 3


@pytest.mark.parametrize(
    "fault",
    [("status", 500), ("status", 429), ("cut", 0), ("text", "{"), ("text", '{"choices": []}')],
)
def test_a_failed_request_is_tried_again(
    serve: Callable[[], Any], connect: Callable[..., Any], fault: tuple[str, Any]
) -> None:
    server = serve()
    engine = connect(server)
    expected = generate(engine, greedy=True)
    server.faults.append(fault)
    assert generate(engine, greedy=True).token_ids[0].tolist() == expected.token_ids[0].tolist()
    assert server.counts["/v1/completions"] == 3


def test_retries_have_a_budget(serve: Callable[[], Any], connect: Callable[..., Any]) -> None:
    server = serve()
    engine = connect(server, max_retries=2)
    server.faults.extend([("status", 503)] * 10)
    with pytest.raises(ConnectionError, match="3 tries"):
        generate(engine)
    assert server.counts["/v1/completions"] == 3


def test_a_server_that_hangs_is_left_after_the_read_timeout(
    serve: Callable[[], Any], connect: Callable[..., Any]
) -> None:
    server, release = serve(), threading.Event()
    engine = connect(server, read_timeout_s=0.5)
    server.faults.append(("hang", release))
    assert generate(engine).finished.all()
    release.set()


def test_a_refused_request_is_not_tried_again(
    serve: Callable[[], Any], connect: Callable[..., Any]
) -> None:
    server = serve()
    engine = connect(server)
    server.faults.append(("status", 400))
    with pytest.raises(RequestRefused, match="as planned"):
        generate(engine)
    assert server.counts["/v1/completions"] == 1


def test_a_server_that_missed_a_weight_update_gets_no_request(
    serve: Callable[[], Any], connect: Callable[..., Any]
) -> None:
    first, second = serve(), serve()
    engine = connect(first, second)
    first.refuses_weights = True
    assert engine.refit(weights(5), 1) == weights_digest(weights(5))
    assert generate(engine, rows=4).weight_version == 1
    assert second.counts["/v1/completions"] == 4


def test_without_a_server_for_the_weights_a_refit_fails_and_the_version_stays(
    serve: Callable[[], Any], connect: Callable[..., Any]
) -> None:
    server = serve()
    engine = connect(server)
    server.refuses_weights = True
    with pytest.raises(ServersLost, match="version 1"):
        engine.refit(weights(5), 1)
    assert engine.weight_version == 0


def test_rows_are_spread_over_the_servers_by_what_is_outstanding(
    serve: Callable[[], Any], connect: Callable[..., Any]
) -> None:
    servers = [serve(), serve()]
    meet = threading.Barrier(8)
    for server in servers:
        server.before_event = lambda number: meet.wait(60) if number == 0 else None
    generate(connect(*servers), rows=8)
    assert [server.most_open for server in servers] == [4, 4]


def test_a_row_is_reported_as_soon_as_it_is_finished_and_in_the_calling_thread(
    serve: Callable[[], Any], connect: Callable[..., Any]
) -> None:
    first, second = serve(), serve()
    engine = connect(first, second)
    release = threading.Event()
    second.before_event = lambda _: release.wait()
    reported: list[tuple[int, int, bool, int]] = []

    def on_finished(row: int, response: Any, truncated: bool) -> None:
        reported.append((row, len(response), truncated, threading.get_ident()))
        release.set()

    generate(engine, rows=2, tokens=6, on_finished=on_finished)
    assert sorted(reported) == [(row, 6, True, threading.get_ident()) for row in range(2)]


def test_an_error_of_the_report_ends_the_generation(
    serve: Callable[[], Any], connect: Callable[..., Any]
) -> None:
    first, second = serve(), serve()
    engine = connect(first, second)
    release = threading.Event()
    second.before_event = lambda _: release.wait()

    def on_finished(*_: object) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        generate(engine, rows=2, tokens=6, on_finished=on_finished)
    release.set()
    assert second.wait_for("ended")
