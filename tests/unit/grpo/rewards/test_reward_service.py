"""The reward service: one request per row, tries within a budget, and answers that are checked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.config.rewards import RewardServiceConfig
from rlconform.grpo.failures import RewardFailure
from rlconform.grpo.rewards.base import Reward, RewardRequest
from rlconform.grpo.rewards.outcome import checked
from rlconform.grpo.rewards.service import REQUEST_ID, ServiceScorer
from rlconform.grpo.tasks import EnvStep

from .scorers import SOON_S, request

Cause = RewardFailureCause


class Service:
    """A server on loopback that answers each request as the next entry of ``script`` does.

    An entry gets the handler and the request's id; the last one answers all further requests.
    """

    def __init__(self) -> None:
        self.script: list[Callable[[BaseHTTPRequestHandler, str], None]] = [answers(0.5)]
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.ended = threading.Event()  # lets requests that hang end
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with service._lock:
                    number = min(len(service.requests), len(service.script) - 1)
                    service.requests.append(body)
                    service.paths.append(self.path)
                service.script[number](self, self.headers[REQUEST_ID])

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def scored(
        self, *of: RewardRequest, timeout_s: float = SOON_S, **options: Any
    ) -> list[Reward | RewardFailure]:
        """Score rows at once; return their rewards or failures."""
        config = RewardServiceConfig(base_url=self.url, **{"backoff_s": 0.0, **options})

        async def one(scorer: ServiceScorer, row: RewardRequest) -> Reward | RewardFailure:
            try:
                return checked(await scorer.score(row), row)
            except RewardFailure as failure:
                return failure

        async def score_all() -> list[Reward | RewardFailure]:
            scorer = ServiceScorer(config, timeout_s=timeout_s)
            try:
                return await asyncio.gather(*(one(scorer, row) for row in of))
            finally:
                await scorer.close()

        return asyncio.run(score_all())

    def failure(self, **options: Any) -> RewardFailure:
        """Score a row that gets no reward; return why."""
        (got,) = self.scored(request(), **options)
        assert isinstance(got, RewardFailure)
        return got

    def close(self) -> None:
        """End the server and its threads."""
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, length: int = -1) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length < 0 else length))
    handler.end_headers()
    handler.wfile.write(body)


def body_of(request_id: str, data: object) -> dict[str, Any]:
    pooled = {"index": 0, "object": "pooling", "data": data}
    return {"id": f"pool-{request_id}", "object": "list", "model": "reward", "data": [pooled]}


def answers(data: object) -> Callable[[BaseHTTPRequestHandler, str], None]:
    values = data if isinstance(data, list) else [data]
    return lambda handler, name: send(handler, 200, json.dumps(body_of(name, values)).encode())


def says(status: int, text: str = "no") -> Callable[[BaseHTTPRequestHandler, str], None]:
    return lambda handler, _: send(handler, status, text.encode())


def hangs_up(handler: BaseHTTPRequestHandler, name: str) -> None:
    """Announce a whole answer, send half of it, and end the connection."""
    text = json.dumps(body_of(name, [0.5])).encode()
    send(handler, 200, text[: len(text) // 2], len(text))
    handler.close_connection = True


@pytest.fixture
def service() -> Iterator[Service]:
    opened = Service()
    yield opened
    opened.close()


def test_rows_are_asked_for_once_each_and_at_once(service: Service) -> None:
    """The barrier lets nobody through before all requests have come."""
    barrier = threading.Barrier(8)

    def waits(handler: BaseHTTPRequestHandler, name: str) -> None:
        barrier.wait(SOON_S)
        answers(float(name.partition("_g")[2].partition(".")[0]))(handler, name)

    service.script = [waits]
    got = service.scored(*(request(f"p_g{row}") for row in range(8)))
    assert [one.value for one in got if isinstance(one, Reward)] == list(range(8))
    assert len(service.requests) == 8
    assert set(service.paths) == {"/pooling"}


def test_the_request_is_the_whole_conversation(service: Service) -> None:
    row = request("p_g0", 3, "5", "7")
    steps = (EnvStep(0.0, "higher"), EnvStep(1.0, "unused"))
    of = RewardRequest("p_g0", 3, row.problem, row.turns, "val", steps)
    (got,) = service.scored(of, model="judge")
    assert got == Reward("p_g0", 3, 0.5)
    assert service.requests == [
        {
            "model": "judge",
            "messages": [
                {"role": "user", "content": "3+4"},
                {"role": "assistant", "content": "5"},
                {"role": "user", "content": "higher"},
                {"role": "assistant", "content": "7"},
            ],
        }
    ]


def test_the_reward_of_several_tokens_is_that_of_the_last(service: Service) -> None:
    service.script = [answers([[0.1], [0.2], [0.9]])]
    assert service.scored(request()) == [Reward("p_g0", 0, 0.9)]


@pytest.mark.parametrize("refusal", [says(500), says(503), says(429), hangs_up])
def test_what_may_pass_is_tried_again(
    service: Service, refusal: Callable[[BaseHTTPRequestHandler, str], None]
) -> None:
    service.script = [refusal, answers(0.5)]
    assert service.scored(request()) == [Reward("p_g0", 0, 0.5)]
    assert len(service.requests) == 2


@pytest.mark.parametrize("retries", [0, 3])
def test_tries_are_counted(service: Service, retries: int) -> None:
    service.script = [says(500, "overloaded")]
    failure = service.failure(max_retries=retries)
    assert failure.failure_cause is Cause.UNAVAILABLE
    assert f"status 500: 'overloaded'; it was the last of {retries + 1} tries" in str(failure)
    assert len(service.requests) == retries + 1


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_final(service: Service, status: int) -> None:
    service.script = [says(status), answers(0.5)]
    assert service.failure().failure_cause is Cause.UNAVAILABLE
    assert len(service.requests) == 1


def test_a_try_that_hangs_is_given_up(service: Service) -> None:
    service.script = [lambda *_: bool(service.ended.wait(SOON_S)), answers(0.5)]  # type: ignore[list-item]
    assert service.scored(request(), request_timeout_s=0.3) == [Reward("p_g0", 0, 0.5)]
    assert len(service.requests) == 2


def test_an_answer_that_drips_is_given_up_as_a_whole(service: Service) -> None:
    def drips(handler: BaseHTTPRequestHandler, _: str) -> None:
        send(handler, 200, b" ", 10**6)
        while not service.ended.wait(0.05):
            try:
                handler.wfile.write(b" ")
            except OSError:  # the client has gone
                return

    service.script = [drips]
    failure = service.failure(request_timeout_s=0.3, max_retries=0)
    assert failure.failure_cause is Cause.TIMEOUT
    assert "has no answer after 0.3 s" in str(failure)


def test_all_tries_and_pauses_end_within_the_time_of_the_row(service: Service) -> None:
    service.script = [says(500)]
    failure = service.failure(timeout_s=0.3, backoff_s=SOON_S, max_retries=5)
    assert failure.failure_cause is Cause.TIMEOUT
    assert "gave no reward of 'p_g0' within 0.3 s" in str(failure)
    assert len(service.requests) == 1


def test_a_service_that_is_not_there() -> None:
    gone = Service()
    gone.close()
    failure = gone.failure(max_retries=1)
    assert failure.failure_cause is Cause.UNAVAILABLE
    assert "can't be asked: ConnectError" in str(failure)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"id": "pool-p_g0.0", "data": [{"da', Cause.MALFORMED),
        ("", Cause.MALFORMED),
        ("[]", Cause.MALFORMED),
        (json.dumps({"id": "pool-p_g0.0", "data": []}), Cause.MALFORMED),
        (json.dumps({"data": [{"data": [1.0]}]}), Cause.MALFORMED),
        (json.dumps(body_of("p_g0.0", [])), Cause.MALFORMED),
        (json.dumps(body_of("p_g0.0", [0.1, 0.9])), Cause.MALFORMED),
        (json.dumps(body_of("p_g0.0", ["0.5"])), Cause.MALFORMED),
        (json.dumps(body_of("p_g0.0", [None])), Cause.MALFORMED),
        (json.dumps(body_of("p_g0.0", [float("nan")])), Cause.NOT_FINITE),
        (json.dumps(body_of("p_g0.0", [float("inf")])), Cause.NOT_FINITE),
        (json.dumps(body_of("p_g1.0", [0.5])), Cause.WRONG_ROW),
        (json.dumps(body_of("p_g0.1", [0.5])), Cause.WRONG_ROW),
    ],
)
def test_a_body_that_is_no_reward_of_the_row_is_refused_at_once(
    service: Service, text: str, cause: RewardFailureCause
) -> None:
    service.script = [says(200, text)]
    assert service.failure().failure_cause is cause
    assert len(service.requests) == 1
