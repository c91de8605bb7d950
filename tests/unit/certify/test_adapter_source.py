"""The report names the adapter's module and digests its source."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from rlconform.certify.adapter_source import adapter_of, source_digest
from rlconform.certify.plugin.check_result import as_json
from rlconform.certify.target import resolve_target
from rlconform.contract import Target

ADAPTER = """
from rlconform.contract import Target

def make_client(cfg, bootstrap): ...

class Opener:
    def __call__(self, cfg, bootstrap): ...
    def open(self, cfg, bootstrap): ...

PLANE = Target(name="acme", open=make_client)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder with a package ``acme_pack`` and a loose module ``acme_loose``."""
    package = tmp_path / "acme_pack"
    (package / "wire").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "adapter.py").write_text(ADAPTER)
    (package / "wire" / "codec.py").write_text("CODE = 1\n")
    (package / "notes.txt").write_text("not code")
    (tmp_path / "acme_loose.py").write_text(ADAPTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.startswith(("acme_pack", "acme_loose"))]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def adapter(spec: str) -> dict[str, Any]:
    return adapter_of(resolve_target(spec))


def test_a_loose_module_is_its_one_file(folder: Path) -> None:
    del folder
    assert adapter("acme_loose:PLANE").items() >= {"module": "acme_loose", "files": 1}.items()
    assert adapter("acme_loose:PLANE")["distributions"] == {}


@pytest.mark.parametrize("changed", ["adapter.py", "wire/codec.py"])
def test_a_package_is_all_of_its_python_files(folder: Path, changed: str) -> None:
    before = adapter("acme_pack.adapter:PLANE")
    assert before.items() >= {"module": "acme_pack.adapter", "files": 3}.items()
    (folder / "acme_pack" / "notes.txt").write_text("changed")
    assert adapter("acme_pack.adapter:PLANE") == before
    with (folder / "acme_pack" / changed).open("a") as source:
        source.write("# changed\n")
    assert adapter("acme_pack.adapter:PLANE")["sha256"] != before["sha256"]


def test_the_digest_is_what_sha256sum_gives(folder: Path) -> None:
    (folder / "b.py").write_text("b")
    (folder / "a.py").write_text("a")
    listed = subprocess.run(
        ["sha256sum", "a.py", "b.py"], cwd=folder, capture_output=True, check=True
    ).stdout
    files = {name: folder / name for name in ("b.py", "a.py")}
    assert source_digest(files) == hashlib.sha256(listed).hexdigest()


@pytest.mark.parametrize("name", ["make_client", "Opener"])
def test_a_plain_factory_is_named_by_its_own_module(folder: Path, name: str) -> None:
    del folder
    assert adapter(f"acme_loose:{name}")["module"] == "acme_loose"


def test_an_opener_of_any_kind_is_found(folder: Path) -> None:
    del folder
    resolve_target("acme_loose:PLANE")
    loose = sys.modules["acme_loose"]
    openers = (
        functools.partial(loose.make_client),
        functools.partial(functools.partial(loose.make_client)),
        loose.Opener(),
        loose.Opener().open,
    )
    for opener in openers:
        assert adapter_of(Target(name="x", open=opener))["module"] == "acme_loose"


def test_an_opener_from_nowhere_has_no_digest() -> None:
    made: dict[str, Any] = {"__name__": "nowhere"}
    exec("def opens(cfg, bootstrap): ...", made)
    assert adapter_of(Target(name="x", open=made["opens"])) == {
        "module": "nowhere", "distributions": {},
    }  # fmt: skip


def test_an_installed_adapter_has_its_distributions_version() -> None:
    built_in = adapter("memory")
    assert built_in["distributions"] == {"rlconform": version("rlconform")}
    assert built_in["files"] > 1


def test_a_configuration_is_written_as_json_can_hold_it() -> None:
    config: Mapping[Any, Any] = {
        "folder": Path("plane"), 3: (1, 2.5, None, True), "far": float("inf"), "in": {"a": {1}},
    }  # fmt: skip
    assert as_json(config) == {
        "folder": "plane", "3": [1, 2.5, None, True], "far": "inf", "in": {"a": "{1}"},
    }  # fmt: skip
