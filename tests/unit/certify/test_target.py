"""Names of targets are opened as clients; the error for each mistake says how to fix it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlconform.backends import BUILTIN, ONE_PROCESS
from rlconform.certify.target import (
    TargetError,
    known_targets,
    open_client,
    open_target,
    resolve_target,
)
from rlconform.contract import CLIENT_METHODS, ConfigError, Target

VENDOR = """
from rlconform.contract import CLIENT_METHODS, Target

__version__ = "1.2.3"


class Client:
    def __init__(self, cfg, bootstrap):
        self.cfg, self.bootstrap = cfg, bootstrap

    def __getattr__(self, name):
        if name in CLIENT_METHODS:
            return lambda **_: None
        raise AttributeError(name)


class HalfAClient:
    def put_samples(self): ...
    def close(self): ...


def make_client(cfg, bootstrap=True):
    return Client(cfg, bootstrap)


def make_half(cfg, bootstrap=True):
    return HalfAClient()


class shelf:
    make_client = staticmethod(make_client)


PLANE = Target(
    name="acme/shm", open=Client, version="9", config={"port": 1}, capabilities={"objects": True}
)
a_number = 42
nothing = None
"""


@pytest.fixture(autouse=True)
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder with a vendor's module, which each test imports again."""
    (tmp_path / "acme_plane.py").write_text(VENDOR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "acme_plane", raising=False)
    return tmp_path


def message(spec: str) -> str:
    """The error message for a user who typed ``spec``."""
    with pytest.raises(TargetError) as refused:
        resolve_target(spec)
    assert isinstance(refused.value, ConfigError)
    return str(refused.value)


# -- names ---------------------------------------------------------------------------------------


def test_the_built_in_names_are_known() -> None:
    assert known_targets()[: len(BUILTIN)] == list(BUILTIN)
    assert resolve_target("memory").name == "memory"


def test_a_name_is_listed_once() -> None:
    assert sorted(known_targets()) == sorted(set(known_targets()))


@pytest.mark.parametrize("typed", ["memroy", "memor", "Memory"])
def test_a_name_mistyped_gets_a_suggestion(typed: str) -> None:
    said = message(typed)
    assert repr(typed) in said
    assert "did you mean 'memory'?" in said


@pytest.mark.parametrize("typed", ["", "warp-drive", "warp_drive:"])
def test_an_unknown_name_lists_the_known_ones(typed: str) -> None:
    said = message(typed)
    assert repr(typed) in said
    assert "did you mean" not in said
    assert "module:attribute" in said
    for name in BUILTIN:
        assert name in said


@pytest.mark.parametrize("typed", ["acme_plane", "acme_plane.py", "./acme_plane.py"])
def test_a_module_without_an_attribute_gets_a_suggestion(typed: str) -> None:
    said = message(typed)
    assert repr(typed) in said
    assert "such as acme_plane:TARGET. Known: " in said


def test_a_plane_of_one_process_is_not_certified_for_several() -> None:
    with pytest.raises(TargetError, match=r"'memory' declares level unit.*--level functional"):
        resolve_target("memory", "functional")
    assert resolve_target("memory", "unit").level == "unit"


def test_built_in_planes_of_one_process_are_known_by_name() -> None:
    levels = {name: resolve_target(name).level for name in ("memory", "ray_store")}
    assert {name for name, level in levels.items() if level == "unit"} == ONE_PROCESS


def test_a_factory_declares_no_level_so_any_can_be_asked_for() -> None:
    assert resolve_target("acme_plane:make_client", "functional").level == "functional"


def test_a_message_reads_as_sentences() -> None:
    assert "'warp-drive'. Known: " in message("warp-drive")


# -- modules -------------------------------------------------------------------------------------


def test_a_module_of_the_current_folder_is_found() -> None:
    target = resolve_target("acme_plane:PLANE")
    assert isinstance(target, Target)
    assert (target.name, target.version) == ("acme/shm", "9")


@pytest.mark.parametrize("attribute", ["make_client", "shelf.make_client", "Client"])
def test_a_factory_becomes_a_target_of_the_smallest_level(attribute: str) -> None:
    spec = f"acme_plane:{attribute}"
    target = resolve_target(spec)
    assert (target.name, target.version, target.level) == (spec, "1.2.3", "unit")
    assert target.capabilities == {}


def test_a_module_that_is_not_there_is_named() -> None:
    said = message("acme_plain:make_client")
    assert "'acme_plain' does not import: ModuleNotFoundError" in said


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("import not_installed_at_all", "ModuleNotFoundError: No module named 'not_installed"),
        ("def broken(:", "SyntaxError"),
        ("raise RuntimeError('needs a licence')", "RuntimeError: needs a licence"),
    ],
)
def test_a_module_that_does_not_import_says_why(vendor: Path, text: str, hint: str) -> None:
    (vendor / "acme_broken.py").write_text(text)
    said = message("acme_broken:make_client")
    assert "'acme_broken' does not import" in said
    assert hint in said


@pytest.mark.parametrize("attribute", ["make_clint", "shelf.make_clint", "PLANE.open.x"])
def test_an_attribute_that_is_not_there_is_named(attribute: str) -> None:
    said = message(f"acme_plane:{attribute}")
    assert f"'acme_plane' has no attribute {attribute!r}" in said


@pytest.mark.parametrize(("attribute", "kind"), [("a_number", "int"), ("nothing", "NoneType")])
def test_what_is_neither_target_nor_factory_is_named(attribute: str, kind: str) -> None:
    said = message(f"acme_plane:{attribute}")
    assert f"is a {kind}" in said
    assert "factory(cfg, bootstrap=...)" in said


# -- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["acme_plane:make_client", "acme_plane:PLANE"])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_a_client_is_opened_as_owner_or_attached(spec: str, bootstrap: bool) -> None:
    client = open_target(spec, {"port": 7}, bootstrap=bootstrap)
    assert vars(client) == {"cfg": {"port": 7}, "bootstrap": bootstrap}


@pytest.mark.parametrize("config", [None, {}])
def test_without_a_configuration_the_targets_own_is_used(config: dict[str, int] | None) -> None:
    assert vars(open_target("acme_plane:PLANE", config))["cfg"] == {"port": 1}


def test_a_client_that_lacks_methods_is_refused_with_their_names() -> None:
    with pytest.raises(TargetError) as refused:
        open_client(resolve_target("acme_plane:make_half"), {}, True)
    missing = [name for name in CLIENT_METHODS if name not in {"put_samples", "close"}]
    assert f"HalfAClient without {', '.join(missing)}:" in str(refused.value)


def test_the_built_in_plane_opens() -> None:
    client = open_target("memory")
    client.close()
