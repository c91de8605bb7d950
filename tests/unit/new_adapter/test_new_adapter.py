"""``rlconform new-adapter``: the package is complete, and says what is still to be written."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlconform._yaml import read_config
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.plugin.unwritten import message, unwritten_methods
from rlconform.certify.target import open_client, resolve_target
from rlconform.cli import app
from rlconform.contract import CLIENT_METHODS, ConfigError, DataPlaneClient, load_requirements
from rlconform.new_adapter import NewAdapter, write_package


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write a package as the command does; afterwards forget its modules."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["new-adapter", "acme-tried"])
    assert done.exit_code == 0, done.output
    assert "rlconform certify acme_tried.target:TARGET --config plane.yaml" in done.output
    monkeypatch.syspath_prepend(tmp_path / "acme-tried")
    yield tmp_path / "acme-tried"
    for name in [name for name in sys.modules if name.startswith("acme_tried")]:
        del sys.modules[name]


def test_the_package_has_every_part(package: Path) -> None:
    written = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert written == {
        "pyproject.toml", "README.md", "plane.yaml", "tests/test_conformance.py",
        "acme_tried/__init__.py", "acme_tried/client.py", "acme_tried/target.py",
        ".github/workflows/conformance.yml",
    }  # fmt: skip
    assert read_config(package / "plane.yaml") == {"name": "acme-tried"}
    for path in package.rglob("*.py"):
        ast.parse(path.read_text("utf-8"))


def test_the_client_has_the_protocols_signatures_and_names_what_it_owes(package: Path) -> None:
    client = import_module("acme_tried.client").AcmeTriedClient
    text = (package / "acme_tried" / "client.py").read_text("utf-8")
    assert "import rlconform" not in text
    for method in CLIENT_METHODS:
        own, theirs = (
            [(one.name, one.default) for one in inspect.signature(function).parameters.values()]
            for function in (getattr(client, method), getattr(DataPlaneClient, method))
        )
        assert own == theirs
    sections = ("REG", "PUT", "GET", "TAG", "CLAIM", "STAT", "CLEAR", "LIFE")
    owed = [
        row.id
        for row in load_requirements().values()
        if row.published and row.scope == "plane" and row.id.startswith(sections)
    ]
    assert [one for one in owed if one not in text] == []


@pytest.mark.usefixtures("package")
def test_each_method_says_what_to_write() -> None:
    target = resolve_target("acme_tried.target:TARGET")
    found = unwritten_methods(open_client(target, {}, True), 5.0)
    assert list(found) == [name for name in CLIENT_METHODS if name != "close"]
    assert all(" to " in text and text.endswith(")") for text in found.values())
    session = PlaneSession("acme_tried.target:TARGET", target, {}, "unit")
    session.note_health()
    text = session.unwritten()
    assert text == message(session.owner(), found)
    assert text.startswith("AcmeTriedClient has 7 methods to write:\n  register_partition: ")


def test_a_plane_that_puts_is_judged_by_the_checks() -> None:
    session = PlaneSession("memory", resolve_target("memory"), {}, "unit")
    session.note_health()
    assert session.unwritten() == ""
    session.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("acme shm", "letters, digits"),
        ("1st", "letters, digits"),
        ("json", "has a module json already"),
        ("rlconform", "has a module rlconform already"),
        ("lambda", "has a module lambda already"),
    ],
)
def test_a_name_that_no_package_can_have_is_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        NewAdapter(name)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("mine")
    with pytest.raises(ConfigError, match="expected a new or empty folder"):
        write_package(NewAdapter("acme-new"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["client.py"]
