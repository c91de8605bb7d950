"""What a run finds in its folder of the part before."""

from __future__ import annotations

from pathlib import Path

from rlconform.events import EventWriter
from rlconform.events.left_over import left_over
from rlconform.events.schema import RunStarted


def test_only_processes_without_a_last_line_are_left_over(tmp_path: Path) -> None:
    assert left_over(tmp_path) == (None, [])
    with EventWriter(tmp_path, run="mine", role="closed") as closed:
        closed.write(RunStarted())
    with EventWriter(tmp_path, run="mine", role="torn") as torn:
        torn.write(RunStarted())
        assert torn.path is not None
        text = torn.path.read_bytes()
    torn.path.write_bytes(text + text[:20])
    assert left_over(tmp_path) == ("mine", [torn.source])
