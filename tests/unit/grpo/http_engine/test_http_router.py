"""``EndpointRouter``: which server gets the next request."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from rlconform.grpo.generation.http_router import EndpointRouter, NoEndpoint

URLS = ("http://a", "http://b", "http://c")


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def router(clock: Clock) -> EndpointRouter:
    router = EndpointRouter(URLS, 10.0, clock)
    for endpoint in router.endpoints:
        endpoint.version = 3
    return router


def fail(router: EndpointRouter) -> str:
    """Let the next request fail; return its server."""
    with pytest.raises(ConnectionError), router.lend(3) as endpoint:
        raise ConnectionError
    return endpoint.url


def test_the_server_with_the_fewest_open_requests_is_next(router: EndpointRouter) -> None:
    with ExitStack() as stack:
        urls = [stack.enter_context(router.lend(3)).url for _ in range(6)]
    assert sorted(urls) == sorted([*URLS, *URLS])
    assert [each.outstanding for each in router.endpoints] == [0, 0, 0]


def test_a_server_that_failed_is_avoided_for_a_while(router: EndpointRouter, clock: Clock) -> None:
    assert fail(router) == "http://a"
    with ExitStack() as stack:
        urls = {stack.enter_context(router.lend(3)).url for _ in range(8)}
    assert urls == {"http://b", "http://c"}
    clock.now = 10.0
    with router.lend(3) as endpoint:
        assert endpoint.url == "http://a"


def test_if_all_failed_the_oldest_failure_is_tried_again(
    router: EndpointRouter, clock: Clock
) -> None:
    for clock.now in (1.0, 2.0, 3.0):
        fail(router)
    with router.lend(3) as endpoint:
        assert endpoint.url == "http://a"


def test_a_server_with_other_weights_is_never_lent(router: EndpointRouter) -> None:
    for endpoint in router.endpoints[:2]:
        endpoint.version = None
    with router.lend(3) as endpoint:
        assert endpoint.url == "http://c"
    with pytest.raises(NoEndpoint, match="version 4"), router.lend(4):
        pass
