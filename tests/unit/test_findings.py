"""The reproducers in ``docs/findings`` print what they say, those that need no plane.

Those of planes run in ``tests/e2e/test_findings_of_planes.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlconform._resources import resource_dir

FOLDER = resource_dir("suites").parent / "docs" / "findings"
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in [FOLDER / "nemo_rl.md"]
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )
]


def claimed(block: str) -> list[str]:
    """The comment behind each ``print``, without what is expected instead."""
    comments = re.findall(r"print\(.*\)  +# (.*)$", block, re.MULTILINE)
    return [comment.partition(";")[0].strip() for comment in comments]


def test_there_are_reproducers() -> None:
    assert len(BLOCKS) >= 8


@pytest.mark.parametrize("block", BLOCKS)
def test_a_reproducer_prints_what_it_says(
    block: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = tmp_path / "reproducer.py"
    exec(compile(block, source, "exec"), {})
    printed = re.sub(r"tensor\(|[\[\])]", "", capsys.readouterr().out)
    numbers = [re.sub(r"[\[\]]|\band\b|,", " ", claim).split() for claim in claimed(block)]
    assert numbers, "a reproducer says what it prints"
    for wanted in (word for words in numbers for word in words):
        assert re.search(rf"(?<![\w.]){re.escape(wanted)}(?![\d])", printed), (wanted, printed)
