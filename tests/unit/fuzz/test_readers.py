"""Every file that a command reads may be hostile: it is read, or refused in one sentence.

``nox -s fuzz`` reads 10,000 mutations of each format; the unit tests read the first few of them.
``RLCONFORM_FUZZ=FORMAT:NUMBER`` makes one input again.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.unit.fuzz.formats import FORMATS, Format
from tests.unit.fuzz.limits import limited_memory, limited_time
from tests.unit.fuzz.mutations import SCRIPT, mutated

#: Inputs of each format.
INPUTS = int(os.environ.get("RLCONFORM_FUZZ_INPUTS", "20"))
SEED = int(os.environ.get("RLCONFORM_FUZZ_SEED", "0"))


def input_of(name: str, number: int) -> bytes:
    """The input of this number, the same in every process."""
    return mutated(random.Random(f"{SEED} {name} {number}"), FORMATS[name].samples())


def outcome(kind: Format, folder: Path, data: bytes) -> str:
    """Read a file in a new folder; return "read", or the error of the command."""
    folder.mkdir()
    try:
        with limited_time():
            shown = kind.read(folder, data)
    except kind.errors as error:
        said, came = str(error), type(error).__name__
    else:
        said, came = "", "read"
        assert SCRIPT not in shown, "a text of the file is markup in the page"
    finally:
        shutil.rmtree(folder)
    assert "\n" not in said, f"expected one line; got {said}"
    assert len(said) < 2000, f"expected a sentence; got {len(said)} characters"
    return came


@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("name", FORMATS)
def test_mutations_are_read_or_refused(
    name: str, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    counts: dict[str, int] = {}
    with limited_memory():
        for number in range(INPUTS):
            data = input_of(name, number)
            try:
                came = outcome(FORMATS[name], tmp_path / "input", data)
            except BaseException as error:
                error.add_note(f"{name}:{number} of seed {SEED}")
                raise
            counts[came] = counts.get(came, 0) + 1
    record_property(name, counts)
    assert sum(counts.values()) == INPUTS
    assert not (Path.cwd() / "planted").exists(), "a file was executed"


@pytest.mark.parametrize("name", FORMATS)
def test_the_samples_are_right(name: str, tmp_path: Path) -> None:
    for number, sample in enumerate(FORMATS[name].samples()):
        assert outcome(FORMATS[name], tmp_path / str(number), sample) == "read"
