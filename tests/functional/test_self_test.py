"""The self-test command runs trials that share a Ray and actors, and leaves no process running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: Defects that only several processes show.
SHARED_PLANES = (
    "attached_second_close_ends_plane",
    "status_counts_own_calls_only",
    "attached_get_empty_rows_filled",
)


@contextmanager
def self_test(out: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    """``rlconform self-test --gate`` of these defects, one after another."""
    command = [sys.executable, "-m", "rlconform", "self-test", "--gate", "--jobs", "1"]
    named = [word for name in SHARED_PLANES for word in ("--mutant", name)]
    with subprocess.Popen(
        [*command, *named, "--out", str(out)],
        env=os.environ | {"RLCONFORM_TEST": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        yield running


def test_trials_share_a_ray_that_ends_with_them(
    tmp_path: Path, running_with: Callable[[str, str], list[str]]
) -> None:
    mark = uuid.uuid4().hex
    with self_test(tmp_path, mark) as running:
        printed, errors = running.communicate(timeout=300)
    assert running.returncode == 0, printed + errors
    assert "3 killed" in printed
    assert running_with("RLCONFORM_TEST", mark) == []


def test_a_cancelled_self_test_shows_what_was_tried_and_leaves_nothing_running(
    tmp_path: Path, running_with: Callable[[str, str], list[str]]
) -> None:
    mark = uuid.uuid4().hex
    with self_test(tmp_path, mark) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("killed")  # the others have not run yet
        running.send_signal(signal.SIGTERM)
        printed, errors = running.communicate(timeout=120)
    assert running.returncode == 1
    assert "Interrupted: 2 were not tried." in printed
    assert "Traceback" not in errors
    assert running_with("RLCONFORM_TEST", mark) == []
    found = json.loads((tmp_path / "self-test.json").read_text("utf-8"))
    assert [trial["kind"] for trial in found["trials"]] == ["killed"]
    assert "Interrupted: 2 were not tried." in found["header"]["summary"]
    assert found["complete"] is False
