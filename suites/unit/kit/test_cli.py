"""The command line as such."""

from __future__ import annotations

import subprocess
import sys


def test_the_command_line_starts_without_what_takes_long_to_import() -> None:
    """Torch takes a second and more, and a plain installation has no Ray."""
    code = "import sys, rlconform.cli; print(sorted({'ray', 'torch'} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "[]\n"
