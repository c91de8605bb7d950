"""Consumers claim while a producer puts; they end on any plane and return the claimed rows."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator

import pytest

from rlconform.certify import threads
from rlconform.certify.assertions.expect import ContractViolation, FewerExamples
from rlconform.certify.scenarios.consumers import claim_until_done, expect_once, expect_timeout
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import Timeouts

IDS = [f"r{n}" for n in range(20)]


class Queue:
    """A queue that returns each row once, at most two per claim."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self._lock = threading.Lock()

    def put_all(self) -> None:
        """Put the rows one by one."""
        for sample_id in IDS:
            with self._lock:
                self.rows.append(sample_id)

    def claim(self) -> list[str]:
        """Claim up to two rows."""
        with self._lock:
            came, self.rows = self.rows[:2], self.rows[2:]
            return came


def over() -> BackgroundCall:
    producer = BackgroundCall(lambda: None, "a producer of nothing")
    producer.result(5.0)
    return producer


def test_what_all_consumers_claimed_is_all_that_was_put() -> None:
    queue = Queue()
    producer = BackgroundCall(queue.put_all, "the producer")
    claims = claim_until_done(producer, [queue.claim] * 3, len(IDS), 10.0)
    expect_once(claims, IDS)
    assert all(1 <= len(claim) <= 2 for claim in claims)


def test_consumers_end_though_rows_are_returned_again_and_again() -> None:
    claims = claim_until_done(over(), [lambda: ["r0"]] * 2, 5, 10.0)
    assert len(claims) == 12  # six claims of one row by each: one more than possible
    with pytest.raises(ContractViolation, match=r"no row claimed twice; got \['r0'\]"):
        expect_once(claims, ["r0"])


def test_when_one_consumer_raises_the_others_stop() -> None:
    ended = threading.Event()
    going = BackgroundCall(lambda: ended.wait(10.0), "a producer that goes on")
    asked = [0]

    def breaks() -> list[str]:
        raise LookupError("no such task")

    def waits() -> list[str]:
        asked[0] += 1
        return []

    with pytest.raises(ContractViolation, match="to come back"):
        claim_until_done(going, [waits], 5, 0.2)
    stopped_at = asked[0]
    ended.wait(0.1)  # time for some hundred claims, if it went on
    assert asked[0] <= stopped_at + 1
    ended.set()
    with pytest.raises(LookupError):
        claim_until_done(going, [breaks, waits], 5, 10.0)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ([["r0"]], "no row lost; got ['r1']"),
        ([["r0"], ["r1", "r0"]], "no row claimed twice; got ['r0']"),
        ([["r0"], ["r1"], ["ghost"]], "rows claimed"),
    ],
    ids=["lost", "twice", "ghost"],
)
def test_each_defect_has_its_own_message(claims: list[list[str]], message: str) -> None:
    with pytest.raises(ContractViolation) as caught:
        expect_once(claims, ["r0", "r1"])
    assert message in str(caught.value)


def test_a_slow_plane_gets_fewer_rounds() -> None:
    timeouts = Timeouts(start=1, operation=1, settle=1, quiet=0.1, check=0.3)
    slow = PartitionUnderTest(None, "p", timeouts)  # type: ignore[arg-type] - no call is made
    waits = threading.Event()
    with pytest.warns(FewerExamples, match="of 100 rounds only"):
        assert len([waits.wait(0.03) for _ in slow.rounds(100)]) in {1, 2, 3}
    quick = PartitionUnderTest(None, "p", Timeouts())  # type: ignore[arg-type] - nor here
    assert list(quick.rounds(3)) == [0, 1, 2]


class Waiting:
    """A client whose claims raise TimeoutError, each after some seconds of a fake clock."""

    def __init__(self, *after_s: float) -> None:
        self.after_s = list(after_s)
        self.now = 0.0
        self.never = threading.Event()

    def monotonic(self) -> float:
        """Seconds of the clock, which only a claim advances."""
        return self.now

    def claim_meta(self, **_asked: object) -> None:
        """Advance the clock and time out."""
        after_s = self.after_s.pop(0)
        if math.isinf(after_s):
            self.never.wait()
        self.now += after_s
        raise TimeoutError("no rows")


#: A claim returns immediately or never, so short timeouts suffice.
QUICK = Timeouts(start=1, operation=2, settle=0.4, quiet=0.1, check=6)


@pytest.fixture
def expect_timeout_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Waiting]]:
    """``expect_timeout_of(0.9, 0.25)``: expect a timeout of 0.2 s; claims take these seconds."""
    clients: list[Waiting] = []

    def expect_of(*after_s: float) -> Waiting:
        clients.append(client := Waiting(*after_s))
        monkeypatch.setattr(threads, "time", client)  # which measures the seconds of a call
        expect_timeout(PartitionUnderTest(client, "p", QUICK), 3, 0.2)  # type: ignore[arg-type]
        return client

    yield expect_of
    for client in clients:
        client.never.set()


def test_a_claim_that_was_late_once_is_repeated(expect_timeout_of: Callable[..., Waiting]) -> None:
    assert expect_timeout_of(0.9, 0.9, 0.25, 9.0).after_s == [9.0]


@pytest.mark.parametrize(
    ("after_s", "message"),
    [
        ((0.9, 1.0, 0.8), r"within 0\.4 s of 0\.2 s; got 0\.7, and again 0\.8, and again 0\.6 s"),
        ((0.0,), "TimeoutError not before"),
        ((math.inf,), "to come back within"),
    ],
    ids=["always late", "early", "never"],
)
def test_a_claim_that_ignores_its_timeout_is_a_violation(
    expect_timeout_of: Callable[..., Waiting], after_s: tuple[float, ...], message: str
) -> None:
    with pytest.raises(ContractViolation, match=message):
        expect_timeout_of(*after_s)
