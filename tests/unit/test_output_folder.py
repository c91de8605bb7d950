"""Output folders of commands are checked before use."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.cli.output_folder import check_writable, held
from rlconform.contract import ConfigError


def test_a_folder_that_is_there_or_can_be_made_is_accepted(tmp_path: Path) -> None:
    check_writable(tmp_path)
    check_writable(tmp_path / "some" / "more")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "more"])
def test_a_file_in_its_place_is_reported(tmp_path: Path, below: str) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(ConfigError, match="taken is a file"):
        check_writable(tmp_path / "taken" / below)


def test_a_folder_that_cannot_be_written_to_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"/proc can't be written to \("):
        check_writable(Path("/proc/new"))


def test_a_folder_is_held_by_one_alone(tmp_path: Path) -> None:
    with held(tmp_path / "out"):
        with pytest.raises(ConfigError, match="another certification"), held(tmp_path / "out"):
            pytest.fail("it was held twice")
        with held(tmp_path / "beside"):
            (tmp_path / "out" / "report.json").write_text("{}")
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
    with held(tmp_path / "out"):
        pass
    assert (tmp_path / "out" / "report.json").exists()


def test_folders_that_stay_empty_go_again(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), held(tmp_path / "some" / "more"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
