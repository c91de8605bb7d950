"""Makes a virtual environment with a plane's packages over those of this Python.

FOLDER/bin/python ──imports──▶ the plane's packages, e.g. an earlier TransferQueue
                  └─────────▶ everything else from this environment, named by a .pth file
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

#: In a finished environment, the packages that were asked for.
_DONE = "installed.txt"


class InstallFailed(Exception):
    """The packages of a plane can't be installed; the text is pip's error."""


def python_with(packages: Sequence[str], folder: Path) -> Path:
    """Return a Python that has the packages: this one if there are none, else that of ``folder``.

    An environment that was made for the same packages is used again.
    """
    if not packages:
        return Path(sys.executable)
    python, done = folder / "bin" / "python", folder / _DONE
    asked = "\n".join(packages)
    if done.exists() and done.read_text("utf-8") == asked:
        return python
    _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)])
    ours, theirs = sysconfig.get_path("purelib"), _run([str(python), "-c", _PURELIB]).strip()
    # addsitedir reads the .pth files there as well, such as those of editable installs.
    line = f"import site; site.addsitedir({ours!r})\n"
    Path(theirs, "packages_below.pth").write_text(line, "utf-8")
    _run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *packages])
    done.write_text(asked, "utf-8")
    return python


_PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


def _run(command: Sequence[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
        raise InstallFailed((errors or ran.stderr.splitlines() or ["it printed nothing"])[-1])
    return ran.stdout
