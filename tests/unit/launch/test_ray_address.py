"""A process uses the Ray at an address, with its token, or a Ray of its own without one."""

from __future__ import annotations

import os

import pytest

from rlconform._env import SHARED_RAY
from rlconform.backends.ray_runtime import environment_for
from rlconform.cli.ray_address import use_ray_at


def test_an_address_is_for_this_process_and_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED_RAY, "before:1")
    use_ray_at(None)
    assert os.environ[SHARED_RAY] == "before:1"
    use_ray_at("10.0.0.1:6379")
    assert os.environ[SHARED_RAY] == "10.0.0.1:6379"


@pytest.mark.parametrize(
    ("address", "token", "mode"),
    [
        ("10.0.0.1:6379", "secret", "token"),
        ("10.0.0.1:6379", "", "disabled"),
        (None, "secret", "disabled"),  # a local Ray asks for none
    ],
)
def test_a_token_is_used_with_an_address(
    monkeypatch: pytest.MonkeyPatch, address: str | None, token: str, mode: str
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    assert environment_for(address)["RAY_AUTH_MODE"] == mode
