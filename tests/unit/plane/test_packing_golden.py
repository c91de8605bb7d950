"""Plans are equal to those in ``fixtures/golden/packing.json``.

After an intended change of a plan, add a line to the changelog and rebuild the file:

    python fixtures/golden/make_packing.py --write
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from itertools import chain
from typing import Any

import pytest

from rlconform._resources import resource_dir
from rlconform.plane.packing import PACKING_ALGORITHMS, pack_sequences

FOLDER = resource_dir("fixtures") / "golden"
MAKER = FOLDER / "make_packing.py"


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / "packing.json").read_text())
    return content


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    content: dict[str, Any] = runpy.run_path(str(MAKER))["golden_packing"]()
    return content


@pytest.mark.parametrize("part", ["command", "lengths", "bins", "plans"])
def test_each_part_comes_out_as_it_was(
    part: str, golden: dict[str, Any], now: dict[str, Any]
) -> None:
    assert now[part] == golden[part]


def test_the_whole_file_comes_out_byte_for_byte_in_a_process_of_another_hash_seed() -> None:
    """Two drivers that plan the same step must agree for any iteration order of sets."""
    done = subprocess.run(
        [sys.executable, str(MAKER)],
        env=os.environ | {"PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_file_covers_every_algorithm_and_every_mode(golden: dict[str, Any]) -> None:
    assert set(golden["bins"]) == set(PACKING_ALGORITHMS)
    settings = [plan["settings"] for plan in golden["plans"].values()]
    assert {*chain.from_iterable(settings)} == {"sequence_packing", "dynamic_batching"}
    assert {} in settings
    packings = [chosen["sequence_packing"] for chosen in settings if "sequence_packing" in chosen]
    assert {chosen["algorithm"] for chosen in packings} == set(PACKING_ALGORITHMS)
    assert {chosen["microbatch_order"] for chosen in packings} == {"packer", "largest_first"}


@pytest.mark.parametrize("algorithm", PACKING_ALGORITHMS)
def test_a_plan_made_from_what_the_file_says_begins_as_the_file_shows(
    algorithm: Any, golden: dict[str, Any]
) -> None:
    """This test does not use the maker: the file is enough to test another implementation."""
    bins = pack_sequences(golden["lengths"], golden["capacity"], algorithm)
    kept = golden["bins"][algorithm]
    assert len(bins) == kept["count"] >= golden["fewest_bins_possible"]
    assert bins[: len(kept["first"])] == kept["first"]
