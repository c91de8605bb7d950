"""A run on several hosts whose wall clocks differ is judged as if it ran on one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.check_run.judge import judge_records
from rlconform.check_run.verdict import RuleOutcome
from rlconform.events.schema import EventSource, Idle, IdleCause, Record

from .framework_model import right_run
from .scenario import Scenario
from .small_log import Log
from .strategies import scenarios

GOOD = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}
DAY_S = 86_400


def on_own_hosts(records: Sequence[Record], skews_s: Sequence[int]) -> list[Record]:
    """The records as hosts of other wall clocks would write them, one host per process.

    Their order stays, and the clocks are those of writers that exchange stamps with each message.
    """
    hosts: dict[EventSource, int] = {}
    clock, skewed = 0, []
    for record in records:
        number = hosts.setdefault(record.source, len(hosts))
        wall_ns = record.wall_ns + skews_s[number % len(skews_s)] * 10**9
        clock = max(clock + 1, wall_ns // 1000)
        source = msgspec.structs.replace(record.source, host=f"host-{number}")
        skewed.append(msgspec.structs.replace(record, wall_ns=wall_ns, clock=clock, source=source))
    return _lost_renamed(skewed, hosts)


def _lost_renamed(records: list[Record], hosts: dict[EventSource, int]) -> list[Record]:
    """``process_lost`` names processes as well."""
    renamed = []
    for record in records:
        event, lost = record.event, getattr(record.event, "lost", None)
        if isinstance(lost, EventSource) and lost in hosts:
            there = msgspec.structs.replace(lost, host=f"host-{hosts[lost]}")
            event = msgspec.structs.replace(event, lost=there)
        renamed.append(msgspec.structs.replace(record, event=event))
    return renamed


@pytest.mark.parametrize("skew_s", [-3600, 0, 3600])
def test_room_that_another_host_makes_is_not_there_since_its_wall_clock(skew_s: int) -> None:
    """The generation waits for room until an engine applies weights, and writes so at once."""
    log = Log(capacity=1)
    log.generate("a", step=1, version=0)
    log.passes(20)
    log.train("a", 1, 0)
    log.apply(1)
    log.write(Idle(who="generation", seconds=20, cause=IdleCause.BUFFER_FULL))
    log.generate("b", step=2, version=1)
    log.train("b", 2, 1)
    log.finish()
    report = judge_records(on_own_hosts(log.records, [0, skew_s]))
    (liveness,) = [v for v in report.verdicts if v.rule == "liveness"]
    assert liveness.anomalies == ()


@pytest.mark.parametrize("skew_s", [-3600, 0, 3600])
def test_an_idle_time_without_a_cause_is_found_on_one_host(skew_s: int) -> None:
    log = Log(capacity=2)
    log.passes(20)
    log.write(Idle(who="generation", seconds=20, cause=IdleCause.BUFFER_FULL))
    log.finish()
    report = judge_records(on_own_hosts(log.records, [0, skew_s]))
    (liveness,) = [v for v in report.verdicts if v.rule == "liveness"]
    assert "expected buffer_full to be why" in liveness.anomalies[0].sentence


@settings(max_examples=100)
@given(scenarios, st.lists(st.integers(-DAY_S, DAY_S), min_size=2, max_size=4))
def test_skewed_clocks_change_no_verdict(scenario: Scenario, skews_s: list[int]) -> None:
    report = judge_records(on_own_hosts(right_run(scenario), skews_s))
    wrong = [v for v in report.verdicts if v.outcome not in GOOD]
    assert not wrong, [(v.rule, v.missing, [a.sentence for a in v.anomalies]) for v in wrong]
