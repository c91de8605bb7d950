"""Estimates how long the rest of a run takes. It only informs: nothing is left out by it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rlconform.certify.results import RunRecord

#: Results of this run that an estimate needs.
ENOUGH = 20
#: How many results of a folder weigh as much as the mean of the run: the first results of a folder
#: say little, and after one slow check its many others would seem to take an hour.
WEIGHT = 5


def seconds_left(
    run: RunRecord, earlier: Mapping[str, float] = MappingProxyType({})
) -> float | None:
    """Return an estimate of the seconds that the pending checks take, or None if it is too early.

    ``earlier`` has the seconds of an earlier run's checks by id; how much faster or slower this run
    goes is taken into account. A check that is not in it takes as long as the mean of its folder,
    or nearly that of the run where few of the folder have a result. As many checks as the run has
    jobs go on at a time.
    """
    done = run.results
    if len(done) < min(ENOUGH, len(run.due)):
        return None
    known = [id_ for id_ in done if earlier.get(id_)]
    usual = sum(earlier[id_] for id_ in known)
    pace = sum(done[id_].seconds for id_ in known) / usual if usual else 1.0
    expected = {id_: seconds * pace for id_, seconds in earlier.items()}
    by_folder: dict[str, list[float]] = {}
    for id_, result in done.items():
        by_folder.setdefault(_folder(id_), []).append(result.seconds)
    overall = _mean([result.seconds for result in done.values()])
    means = {
        folder: _mean([*seconds, *[overall] * WEIGHT]) for folder, seconds in by_folder.items()
    }
    pending = run.pending
    left = [expected.get(each.id, means.get(_folder(each.id), overall)) for each in pending]
    return sum(left) / run.jobs


def in_words(seconds: float | None) -> str:
    """Return the estimate for a person: in seconds, or in minutes if it is long."""
    if seconds is None:
        return ""
    return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


def _folder(check_id: str) -> str:
    """Return the check's folder, and whether several processes make its calls."""
    return check_id.partition("::")[0].rpartition("/")[0] + "/scattered" * ("scattered" in check_id)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
