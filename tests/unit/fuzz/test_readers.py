"""Every file that a command reads may be hostile: it is read, or refused in one sentence.

``nox -s fuzz`` reads 10,000 mutations of each format; the unit tests read the first few of them.
A finding has the number of its input, from which ``input_of`` makes it again.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import traceback
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.fuzz.formats import FORMATS, Format
from tests.unit.fuzz.limits import TookTooLong, limited_memory, limited_time
from tests.unit.fuzz.mutations import SCRIPT, mutated

#: Inputs of each format.
FEW = 20
INPUTS = int(os.environ.get("RLCONFORM_FUZZ_INPUTS", FEW))
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


def finding(error: BaseException, number: int) -> tuple[str, str]:
    """Describe what went wrong with an input: the place, of which one is enough, and a sentence."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__} at {last.filename}:{last.lineno}"
    return place, f"{number}: {place}: {str(error)[:300]}"


@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("name", FORMATS)
def test_mutations_are_read_or_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts, findings = Counter[str](), dict[str, str]()
    with limited_memory():
        for number in range(INPUTS):
            data = input_of(name, number)
            try:
                counts[outcome(FORMATS[name], tmp_path / "input", data)] += 1
            except (Exception, TookTooLong) as error:  # noqa: BLE001 - each is a finding
                place, said = finding(error, number)
                counts["wrong"] += 1
                findings.setdefault(place, said)
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {dict(counts)}\n" if INPUTS > FEW else "")
    assert not findings, f"{dict(counts)} of seed {SEED}:\n" + "\n".join(findings.values())
    assert counts.total() == INPUTS
    assert not Path("planted").exists(), "a file was executed"


@pytest.mark.parametrize("name", FORMATS)
def test_the_samples_are_right(name: str, tmp_path: Path) -> None:
    for number, sample in enumerate(FORMATS[name].samples()):
        assert outcome(FORMATS[name], tmp_path / str(number), sample) == "read"
