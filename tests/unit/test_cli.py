"""The command line starts quickly and shows messages unchanged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from rlconform._live_bar import LiveBar
from rlconform.cli import app
from rlconform.cli.certify import usual_jobs
from rlconform.cli.console import fail, new_console
from rlconform.contract import load_requirements


def test_the_command_line_starts_without_what_takes_long_to_import() -> None:
    """The import of torch takes a second or more, and a plain installation has no Ray."""
    code = "import sys, rlconform.cli; print(sorted({'ray', 'torch'} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["memory", "--level", "functional"], "declares level unit"),
        (["warp_drive"], "unknown target"),
        (["acme_plane"], "such as acme_plane:TARGET"),
    ],
)
def test_a_name_that_can_not_be_certified_is_refused_before_torch_is_imported(
    tmp_path: Path, typed: list[str], said: str
) -> None:
    (tmp_path / "acme_plane.py").write_text("")
    code = (
        "import atexit, sys, rlconform.certify.certify, rlconform.cli\n"
        "rlconform.certify.certify.Runner = None  # no test process is started\n"
        "atexit.register(lambda: print('torch' in sys.modules))\n"
        "rlconform.cli.main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "certify", *typed],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert said in ran.stderr
    assert (ran.returncode, ran.stdout) == (2, "False\n")


def test_built_in_planes_are_certified_one_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = ("memory", "ray_store", "transfer_queue/simple", "acme_plane:TARGET")
    for cores, jobs in ((1, [2, 1, 1, 1]), (2, [3, 2, 2, 1]), (64, [4, 4, 4, 1])):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: range(n))
        assert list(map(usual_jobs, targets)) == jobs


def test_text_of_a_plane_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Emoji codes and markup stay text: once, ``sig:factory: TypeError`` showed a factory emoji."""
    text = "sig:factory: TypeError [red]"
    with pytest.raises(typer.Exit):
        fail(text)
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


@pytest.mark.parametrize("width", [60, 100])
def test_the_bar_cuts_no_name(width: int) -> None:
    name = "test_rows_of_unlike_lengths_come_back_as_they_were_put[float8_e4m3fn-scattered]"
    shown = StringIO()
    with LiveBar(Console(file=shown, force_terminal=True, width=width), "starting") as bar:
        bar.show(name, total=2)
        bar.bar.refresh()
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.getvalue())
    assert name in re.sub(r"\s", "", text)


def commands() -> list[list[str]]:
    """The words of every command, e.g. ``["events", "export"]``."""
    found = []
    for name, command in getattr(get_command(app), "commands").items():  # noqa: B009
        inner = getattr(command, "commands", {})
        found += [[name, one] for one in inner] or [[name]]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_help_of_a_command_has_an_example_of_it(words: list[str]) -> None:
    ran = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"})
    assert ran.exit_code == 0
    _, _, examples = re.sub(r"\x1b\[[\d;]*m", "", ran.output).partition("Example")
    assert f"rlconform {' '.join(words)}" in examples


def test_requirements_are_listed_as_json() -> None:
    rows = json.loads(CliRunner().invoke(app, ["list", "claim", "--json"]).output)
    known = [row for row in load_requirements().values() if row.section == "CLAIM"]
    assert [row["id"] for row in rows] == [row.id for row in known]
    first = rows[0]
    assert (first["title"], first["sentence"]) == (known[0].title, known[0].sentence)
    assert any(check.startswith("suites/unit/contract/") for check in first["checks"])
    assert first["mutants"]


@pytest.mark.parametrize("words", [["matrix"], ["diff", "there"], ["verify"], ["waivers"]])
def test_a_report_that_is_not_there_is_one_sentence(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "there").mkdir()
    typed = [words[0], *(str(tmp_path / word) for word in words[1:]), str(tmp_path / "none")]
    ran = CliRunner().invoke(app, typed)
    assert ran.exit_code == 2
    assert len(ran.output.strip().splitlines()) == 1
    assert "name the --out folder of certify" in ran.output
