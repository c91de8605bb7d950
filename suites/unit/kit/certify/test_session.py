"""What a level's checks need installed is said before the plane opens."""

from __future__ import annotations

from importlib.machinery import ModuleSpec

import pytest

from rlconform.certify.process import session
from rlconform.contract import ConfigError, Level


@pytest.mark.parametrize(
    ("level", "missing", "extra"),
    [("functional", "ray", "ray"), ("e2e", "ray", "ray"), ("e2e", "transformers", "grpo")],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, level: Level, missing: str, extra: str
) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name == missing else ModuleSpec(name, None)

    monkeypatch.setattr(session, "find_spec", find)
    with pytest.raises(ConfigError, match=rf"level {level} needs.*{missing}.*rlconform\[{extra}\]"):
        session.require_packages(level)


def test_one_process_needs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    session.require_packages("unit")
