"""``certify_there``: the command in a folder of a user, which must stay as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

#: What lies in the user's folder.
CANARY = "a file of the user\n"


@dataclass
class UserFolder:
    """A folder in which a user calls commands; they get a mark by which they are found again."""

    path: Path
    planes: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        (self.path / "work").mkdir(parents=True)
        (self.path / "tmp").mkdir()
        (self.path / "work" / "canary").write_text(CANARY, "utf-8")

    @property
    def out(self) -> Path:
        """The folder of the report."""
        return self.path / "report"

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """Start Python with these arguments, in the user's folder."""
        environment: Mapping[str, str] = os.environ | {
            "RLCONFORM_TEST": self.mark,
            "TMPDIR": str(self.path / "tmp"),
            "PYTHONPATH": os.pathsep.join(
                [str(self.planes), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.path / "work", env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def certify(self, *arguments: str, out: Path | None = None) -> subprocess.Popen[str]:
        """Start a certification."""
        command = ["-m", "rlconform", "certify", *arguments, "--out", str(out or self.out)]
        return self.start(command)

    def untouched(self) -> list[str]:
        """What a command has changed in the folder, or left in that of temporary files."""
        work = self.path / "work"
        found = [f"new: {one.name}" for one in work.iterdir() if one.name != "canary"]
        if not (work / "canary").is_file() or (work / "canary").read_text("utf-8") != CANARY:
            found.append("the user's file is another")
        return found + [f"left: {one.name}" for one in (self.path / "tmp").iterdir()]


@pytest.fixture
def user(tmp_path: Path, planes: Path) -> UserFolder:
    """A user's folder."""
    return UserFolder(tmp_path / "user", planes)


@pytest.fixture
def left_behind(
    user: UserFolder, running_with: Callable[[str, str], list[str]]
) -> Callable[[], list[str]]:
    """``left_behind()``: what the commands have changed, and their processes that still run."""
    return lambda: [*user.untouched(), *running_with("RLCONFORM_TEST", user.mark)]
