"""The package finds its data folders in a checkout and in a wheel."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from rlconform import _resources
from rlconform._resources import Resource, resource_dir
from rlconform.contract import ConfigError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty installation; returns the package's folder in it."""
    package = tmp_path / "site" / "rlconform"
    package.mkdir(parents=True)
    monkeypatch.setattr(_resources, "_PACKAGE", package)
    return package


def test_every_folder_is_found_here() -> None:
    for name in get_args(Resource):
        assert resource_dir(name).is_dir()
        assert resource_dir(name).name == name
    assert Path(__file__).resolve().is_relative_to(resource_dir("suites").parent)


def test_a_checkout_holds_them_beside_the_package(installed: Path) -> None:
    (installed.parent / "suites").mkdir()
    assert resource_dir("suites") == installed.parent / "suites"


def test_a_wheel_holds_them_inside_and_these_go_first(installed: Path) -> None:
    (installed.parent / "suites").mkdir()
    (installed / "_data" / "suites").mkdir(parents=True)
    assert resource_dir("suites") == installed / "_data" / "suites"


def test_a_file_in_the_folders_place_is_not_the_folder(installed: Path) -> None:
    (installed.parent / "suites").write_text("")
    with pytest.raises(ConfigError):
        resource_dir("suites")


def test_an_installation_without_them_says_where_it_looked(installed: Path) -> None:
    with pytest.raises(ConfigError, match="'fixtures'") as refused:
        resource_dir("fixtures")
    assert str(installed / "_data") in str(refused.value)
