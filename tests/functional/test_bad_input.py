"""Bad input gives one message that names the mistake, exit code 2, and no traceback by default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BAD: dict[str, tuple[list[str], list[str]]] = {
    "unknown_target": (["memroy"], ["memroy", "did you mean 'memory'"]),
    "module_missing": (["no_such_module:plane"], ["no_such_module", "does not import"]),
    "attribute_missing": (["hostile:no_such_plane"], ["no_such_plane", "has no attribute"]),
    "not_a_target": (["hostile:a_number"], ["hostile:a_number", "is a int", "Target"]),
    "not_a_client": (["hostile:not_a_client"], ["without", "register_partition", "claim_meta"]),
    "raises_on_open": (["hostile:raises_on_open"], ["ConnectionRefusedError", "50051"]),
    "dies_on_open": (["hostile:dies_on_open"], ["SIGSEGV"]),
    "never_opens": (["hostile:never_opens"], ["did not open within"]),
    "module_alone": (["hostile"], ["'hostile': it is a module", "hostile:TARGET"]),
    "one_process_alone": (
        ["memory", "--level", "functional"],
        ["declares level unit", "leave --level out"],
    ),
    "unknown_level": (["memory", "--level", "unti"], ["unti", "unit, functional, e2e"]),
    "config_missing": (["memory", "--config", "nowhere.yaml"], ["nowhere.yaml"]),
    "unusable_selection": (["memory", "-k", "and and"], ["-k", "and and"]),
    "waivers_missing": (["memory", "--waivers", "nowhere.toml"], ["nowhere.toml"]),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_one_message_and_exit_2(
    certify: Callable[..., Any], arguments: list[str], message: list[str]
) -> None:
    done = certify(*arguments, timeout_s=120)
    assert done.code == 2, done.stdout + done.stderr
    for text in message:
        assert text in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert not done.out.exists()


def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    certify: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "report").write_text("mine", "utf-8")
    done = certify("memory", timeout_s=120)
    assert done.code == 2
    assert "is a file" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.out.read_text("utf-8") == "mine"


def test_a_folder_where_nothing_can_be_written_is_refused_before_the_work(
    certify: Callable[..., Any],
) -> None:
    done = certify("memory", out=Path("/proc/rlconform"), timeout_s=60)
    assert done.code == 2
    assert "--out /proc/rlconform: /proc can't be written to" in done.stderr
    assert done.stdout == ""  # no check was planned


def test_verbose_shows_the_traceback(certify: Callable[..., Any]) -> None:
    done = certify("hostile:raises_on_open", "-v", timeout_s=120)
    assert done.code == 2
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data_plane: {enabled: true, impl: memory, storage_capcity: 5}", "storage_capcity"),
        ("data_plane: {enabled: true, impl: transfer_queue, backend: simple}", "storage_capacity"),
        ("data_plane: {enabled: maybe, impl: memory}", "enabled"),
        ("data_plane: {enabled: false, impl: memory}", "enabled"),
        ("data_plane: [", "plane.yaml"),
        ("just text", "plane.yaml"),
        ("3", "not a mapping"),
        ("\xff\xfe\x00", "not valid YAML"),
    ],
)
def test_config_with_a_mistake(
    certify: Callable[..., Any], tmp_path: Path, text: str, message: str
) -> None:
    config = tmp_path / "plane.yaml"
    config.write_text(text, "latin-1")
    done = certify(
        "rlconform.backends:build_data_plane_client", "--config", str(config), timeout_s=120
    )
    assert done.code == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_nothing_selected_is_exit_3(certify: Callable[..., Any]) -> None:
    done = certify("memory", "-k", "no_check_has_this_name", timeout_s=120)
    assert done.code == 3
    assert done.report["verdict"]["verdict"] == "not certified"
