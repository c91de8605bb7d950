"""A plane session reports missing packages, and planes that fail to open or close."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.plugin import plane_session
from rlconform.contract import ConfigError, Level, Target


@pytest.mark.parametrize(
    ("level", "missing", "extra"),
    [("functional", "ray", "ray"), ("e2e", "ray", "ray"), ("e2e", "transformers", "grpo")],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, level: Level, missing: str, extra: str
) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name == missing else ModuleSpec(name, None)

    monkeypatch.setattr(plane_session, "find_spec", find)
    with pytest.raises(
        ConfigError, match=rf"level {level} needs.*{missing}.*rlconform\[{extra}\].*--level unit"
    ):
        plane_session.require_packages(level)


def test_one_process_needs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_session, "find_spec", lambda _: None)
    plane_session.require_packages("unit")


def opens(times: int) -> Callable[[Mapping[str, Any], bool], MemoryClient]:
    """A function that opens a plane this many times, and raises after that."""
    left = itertools.repeat(None, times)

    def open_plane(cfg: Mapping[str, Any], bootstrap: bool) -> MemoryClient:
        for _ in left:
            return MemoryClient(cfg, bootstrap)
        raise OSError("the port is taken")

    return open_plane


class FailsToClose(MemoryClient):
    """Raises when it is closed."""

    def close(self) -> None:
        super().close()
        raise OSError("no such process")


def session_of(open_plane: Callable[[Mapping[str, Any], bool], Any]) -> plane_session.PlaneSession:
    return plane_session.PlaneSession("spec", Target(name="t", open=open_plane), {}, "unit")


def test_a_plane_that_does_not_open_again_breaks_the_contract() -> None:
    plane = session_of(opens(times=1))
    plane.owner()
    plane.renew()
    with pytest.raises(ContractViolation, match=r"open again.*OSError: the port is taken"):
        plane.owner()


def test_a_plane_that_never_opened_raises_its_own_error() -> None:
    with pytest.raises(OSError, match="the port is taken"):
        session_of(opens(times=0)).owner()


def test_a_close_that_raises_breaks_the_contract() -> None:
    plane = session_of(FailsToClose)
    plane.owner()
    with pytest.raises(ContractViolation, match=r"owner's client to close.*no such process"):
        plane.renew()
