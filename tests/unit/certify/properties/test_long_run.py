"""Long runs find planes that are wrong beyond a few calls, and shorten a run that fails."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from random import Random
from typing import Any

import pytest
import torch

from rlconform.backends.memory import TARGET as MEMORY
from rlconform.certify.properties import runner as runner_module
from rlconform.certify.properties.long_run import (
    STEPS,
    SharedRuns,
    fewer_steps,
    run_long_runs,
)
from rlconform.certify.properties.long_run_plan import LONG_RUNS
from rlconform.certify.properties.near_objects import NearObjects
from rlconform.certify.properties.near_values import KINDS, FieldKind, NearRows
from rlconform.certify.properties.runner import FailedExample, PropertyRunner
from rlconform.certify.recording.recorder import Recording, RecordingClient
from rlconform.contract import Target
from rlconform.mutants.registry import all_mutants

#: For each profile, a mutant whose defect its runs find.
FOUND = {
    "PUT-13": "clear_keeps_dtypes",
    "PUT-21": "get_data_in_order_of_claim",
    "TAG-01": "claim_lengths_decided_by_first_row",
    "CLAIM-02": "claim_repeats_overwritten_rows",
    "STAT-01": "claim_repeats_overwritten_rows",
    "PUT-16": "put_failed_rows_counted",
    "GET-13": "get_data_in_order_of_claim",
}


def run_on(target: Target, profile: str) -> PropertyRunner:
    """Make the long runs of a profile; return the runner."""
    with closing(target.open(target.config, True)) as client:
        recording = RecordingClient(client, Recording())
        runner = PropertyRunner(recording, target.timeouts, stream="a long run")
        run_long_runs(runner, LONG_RUNS[profile], SharedRuns())
    return runner


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("profile", FOUND)
def test_a_wrong_plane_is_found(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "SHRINK_S", 1.0)
    _, mutant = all_mutants()[FOUND[profile]]
    with pytest.raises(FailedExample, match="found with --seed 0, which repeats it"):
        run_on(mutant, profile)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("profile", LONG_RUNS)
def test_a_right_plane_passes(profile: str) -> None:
    assert run_on(MEMORY, profile).failure is None


def test_only_the_steps_that_a_failure_needs_are_left() -> None:
    tried: list[int] = []

    def fails(steps: Any) -> bool:
        tried.append(len(steps))
        return {17, 203} <= {*steps}

    assert fewer_steps(range(STEPS), fails) == [17, 203]
    assert len(tried) < 60


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_have_the_dtype_and_shape_of_their_field(kind: FieldKind) -> None:
    rows, former = NearRows(Random(1)), [[] for _ in range(300)]  # type: ignore[var-annotated]
    for row in rows.draw("x", kind, former):
        assert row.dtype is kind.dtype
        expected = kind.behind if kind.width == 0 else (kind.width or row.shape[0], *kind.behind)
        assert tuple(row.shape) == expected


def test_many_rows_are_equal_to_earlier_ones_or_differ_by_one_byte() -> None:
    near, kind = NearRows(Random(1)), FieldKind(torch.int32, (), 5)
    rows = [near.draw("x", kind, [[]])[0].view(torch.uint8) for _ in range(300)]
    differences = Counter(
        min(int((row != other).sum()) for other in rows[:n]) for n, row in enumerate(rows) if n
    )
    assert differences[0] > 40
    assert differences[1] > 60
    assert sum(differences[n] for n in differences if n > 1) > 60


def test_a_row_takes_an_earlier_value_of_its_own() -> None:
    near, kind = NearRows(Random(1)), FieldKind(torch.float64, (), 64)
    own = [torch.full((64,), float(n)).double() for n in range(3)]
    drawn = [near.draw("x", kind, [own])[0] for _ in range(50)]
    assert any(torch.equal(row, own[0]) for row in drawn)


def test_tags_and_objects_have_the_types_that_every_plane_takes() -> None:
    near = NearObjects(Random(1))
    assert {type(near.tag()) for _ in range(500)} == {int, float, str, bool, type(None)}
    plain = {int, float, str, bool, type(None)}
    drawn = [each for _ in range(100) for each in near.objects(8)]
    assert {*_types_in(drawn)} == plain | {list, dict}
    drawn = [each for _ in range(100) for each in near.other_objects(8)]
    others = {*_types_in(drawn)} - plain - {list, dict}
    assert {tuple, set, bytes, torch.Tensor} <= others


def _types_in(value: Any) -> Any:
    for each in value.values() if isinstance(value, dict) else value:
        yield type(each)
        if isinstance(each, list | dict):
            yield from _types_in(each)
