"""The shares of a run's checks are disjoint, together all checks, and about equally large."""

from __future__ import annotations

import pytest

from rlconform.certify.isolation.shares import Share

CONTRACT = [f"unit/contract/test_get.py::test_{n}" for n in range(40)]
PARITY = [f"unit/contract/test_par.py::test_{n}" for n in range(5)]
SCENARIOS = [f"unit/interplay/test_steps.py::test_{n}" for n in range(6)]
SCATTERED = [f"unit/contract/test_par.py::test_{n}[scattered]" for n in range(5)]
RUNS = [f"unit/properties/test_long_runs.py::test_{n}" for n in range(2)]
ALL = [*CONTRACT, *PARITY, *SCENARIOS, *SCATTERED, *RUNS]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_check_is_in_one_share(count: int) -> None:
    shares = [Share(number, count).of(ALL) for number in range(count)]
    assert sorted(each for share in shares for each in share) == sorted(ALL)


def test_checks_of_the_same_file_are_dealt_out_in_turn() -> None:
    assert Share(0, 2).of(CONTRACT) == set(CONTRACT[::2])
    assert Share(1, 2).of(CONTRACT) == set(CONTRACT[1::2])


def test_a_share_whose_checks_take_long_gets_fewer_of_each_file() -> None:
    many = [f"unit/contract/test_get.py::test_{n}" for n in range(200)]
    with_runs, other = (Share(number, 2).of([*many, *RUNS]) for number in range(2))
    assert set(RUNS) <= with_runs
    assert 0 < len(with_runs) < len(other)
    assert set(many[:10]) & with_runs
    assert set(many[-10:]) & with_runs


def test_checks_that_share_what_one_made_stay_together() -> None:
    for group in (PARITY, SCENARIOS, SCATTERED, RUNS):
        holders = [n for n in range(3) if Share(n, 3).of(ALL) & set(group)]
        assert len(holders) == 1, group


def test_a_share_travels_as_an_option() -> None:
    assert Share.parse(str(Share(2, 5))) == Share(2, 5)
