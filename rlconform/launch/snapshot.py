"""``take_snapshot``: copies a checkout's tracked files, so that a job runs what was launched."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import rlconform
from rlconform.contract import ConfigError

#: Parts of a checkout that no run reads.
_LEFT_OUT = ("docs/", "tests/", "benchmarks/")


@dataclass(frozen=True)
class CodeSnapshot:
    """What was copied."""

    commit: str  # "" outside of a checkout, where the installed package runs
    modified: tuple[str, ...]  # tracked files that differ from the commit, copied as they are


def take_snapshot(to: Path) -> CodeSnapshot:
    """Copy the tracked files to the folder ``to``.

    An installed package has no tracked files: then nothing is copied, and the nodes run what they
    have installed.
    """
    checkout = Path(rlconform.__file__).resolve().parents[1]
    if not (checkout / ".git").exists():
        return CodeSnapshot("", ())
    for name in _git(checkout, "ls-files", "-z").split("\0"):
        source = checkout / name
        if not name or name.startswith(_LEFT_OUT) or not source.is_file():
            continue
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    changed = _git(checkout, "diff", "--name-only", "HEAD").splitlines()
    return CodeSnapshot(_git(checkout, "rev-parse", "HEAD").strip(), tuple(changed))


def _git(checkout: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise ConfigError("git is not installed; it lists the files that a job runs") from None
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"git {' '.join(arguments)}: {error.stderr.strip()}") from error
    return done.stdout
