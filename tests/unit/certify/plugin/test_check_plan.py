"""pytest collects the files that the runner asked for, and no others of their folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rlconform.certify.isolation.events import EventPipe
from rlconform.certify.plugin.check_plan import CheckPlan

pytest_plugins = ("pytester",)


@pytest.fixture
def pipe() -> Iterator[EventPipe]:
    """An event pipe that a runner reads."""
    reading, writing = os.pipe()
    yield EventPipe(writing)
    os.close(reading)
    os.close(writing)


def _ignored(pytester: pytest.Pytester, pipe: EventPipe, *arguments: str) -> list[str]:
    """Return the names of the files that are not collected."""
    for folder in ("unit", "other"):
        made = pytester.mkdir(folder)
        for name in ("asked", "more"):
            (made / f"test_{name}.py").touch()
    options = ("-p", "rlconform.pytest_plugin", "-p", "rlconform.certify.plugin.options")
    given = [str(pytester.path / each) for each in arguments]
    plan = CheckPlan(pytester.parseconfig(*options, *given), pipe, pytest.fail)
    found = sorted(pytester.path.rglob("test_*.py"))
    return [f"{f.parent.name}/{f.name}" for f in found if plan.pytest_ignore_collect(f)]


def test_other_files_are_ignored(pytester: pytest.Pytester, pipe: EventPipe) -> None:
    ignored = _ignored(pytester, pipe, "unit/test_asked.py", "other/test_more.py")
    assert ignored == ["other/test_asked.py", "unit/test_more.py"]


def test_all_files_of_a_folder_are_collected(pytester: pytest.Pytester, pipe: EventPipe) -> None:
    assert _ignored(pytester, pipe, "unit/test_asked.py", "other") == []


def test_pytest_alone_collects_what_it_collects_elsewhere(pytester: pytest.Pytester) -> None:
    assert _ignored(pytester, EventPipe(None), "unit/test_asked.py") == []
