"""The command line as such."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO

import pytest
import typer
from rich.console import Console

from rlconform.terminal import LiveBar, new_console, refuse


def test_the_command_line_starts_without_what_takes_long_to_import() -> None:
    """Torch takes a second and more, and a plain installation has no Ray."""
    code = "import sys, rlconform.cli; print(sorted({'ray', 'torch'} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "[]\n"


def test_text_of_a_plane_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither emoji codes nor markup: ``sig:factory: TypeError`` showed a factory."""
    text = "sig:factory: TypeError [red]"
    with pytest.raises(typer.Exit):
        refuse(text, 2)
    new_console().print(text, markup=False)
    shown = capsys.readouterr()
    assert text in shown.err
    assert text in shown.out


def test_the_bar_shows_a_name_as_it_is() -> None:
    shown = StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    with LiveBar(console, "starting") as bar:
        bar.show("a[red]:factory:", total=2)
        bar.bar.refresh()
    assert "a[red]:factory:" in shown.getvalue()
