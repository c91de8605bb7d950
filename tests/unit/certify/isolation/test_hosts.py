"""Processes are spread over hosts, and times of another host's clock become times of this one."""

from __future__ import annotations

import random

import pytest

from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.isolation.hosts import ClockOffset, host_for, hosts_of
from rlconform.certify.options import CertifyOptions
from rlconform.contract import ConfigError


def node(name: str, alive: bool = True) -> dict[str, object]:
    return {"NodeID": f"id-{name}", "NodeManagerHostname": name, "Alive": alive}


def test_the_first_process_is_on_another_host() -> None:
    hosts = hosts_of([node("n3"), node("n1"), node("n2"), node("gone", alive=False)], "id-n2")
    assert [host.name for host in hosts] == ["n2", "n1", "n3"]
    assert [host_for(hosts, number).name for number in (1, 2, 3, 4)] == ["n1", "n3", "n2", "n1"]


@pytest.mark.parametrize(
    "nodes", [[], [node("n1")], [node("n1"), node("n2", alive=False)], [node("n1"), node("n1")]]
)
def test_one_host_is_no_spread(nodes: list[dict[str, object]]) -> None:
    with pytest.raises(ConfigError, match="expected a Ray of at least 2 hosts"):
        hosts_of(nodes, "id-n1")


def test_the_option_reaches_the_checks() -> None:
    assert "--rlconform-spread" in CertifyOptions("memory", spread=True).pytest_arguments()
    assert "--rlconform-spread" not in CertifyOptions("memory").pytest_arguments()


class TwoClocks:
    """A clock here, one there that is ahead and drifts, and messages that take time."""

    def __init__(self, ahead: float, seed: int, drift: float = 0.0) -> None:
        self.time, self.ahead, self.drift = 5.0, ahead, drift
        self._random = random.Random(seed)

    def here(self) -> float:
        return self.time

    def there(self) -> float:
        return self.time * (1 + self.drift) + self.ahead

    def ask(self) -> float:
        self.time += self._random.uniform(0, 0.01)  # the ways there and back differ
        answer = self.there()
        self.time += self._random.uniform(0, 0.002)
        return answer


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ahead", [0.0, 1000.0, -40.0])
def test_a_call_lies_within_its_span_on_this_clock(seed: int, ahead: float) -> None:
    clocks = TwoClocks(ahead, seed, drift=1e-4)
    offset = ClockOffset.measured(clocks.ask, clocks.here)
    clocks.time += 3
    start, start_there = clocks.here(), clocks.there()
    clocks.time += 0.5
    end, end_there = clocks.here(), clocks.there()
    clocks.time += 20
    both = offset.joined(ClockOffset.measured(clocks.ask, clocks.here))
    span = both.here((start_there, end_there))
    assert span[0] <= start < end <= span[1]
    assert span[1] - span[0] < end - start + 0.03


def test_a_call_that_never_ended_stays_so() -> None:
    offset = ClockOffset(100.0, 0.5)
    open_call = Operation(who="a", op="put", start=103.0)
    assert offset.operation_here(open_call) == Operation(who="a", op="put", start=2.5)
    ended = offset.operation_here(Operation(who="a", op="put", start=103.0, end=104.0))
    assert (ended.start, ended.end) == (2.5, 4.5)
