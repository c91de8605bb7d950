"""``Target`` and ``Timeouts``: accepted values and refused ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from rlconform.contract import (
    CAPABILITIES,
    CLIENT_METHODS,
    LEVELS,
    DataPlaneClient,
    Target,
    Timeouts,
    missing_methods,
)
from rlconform.contract.target import ISOLATIONS


def opened(_cfg: Mapping[str, Any], _bootstrap: bool) -> DataPlaneClient:
    raise AssertionError("a target is described without being opened")


def target(**said: Any) -> Target:
    return Target(name="acme", open=opened, **said)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_levels_and_isolations_are_taken(level: Any, isolation: Any) -> None:
    made = target(level=level, isolation=isolation)
    assert (made.level, made.isolation) == (level, isolation)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"level": "nightly"}, "nightly"),
        ({"level": ""}, "level"),
        ({"isolation": "function"}, "function"),
        ({"capabilities": {"telepathy": True}}, "telepathy"),
        ({"capabilities": {"objects": True, "telepathy": "no"}}, "telepathy"),
    ],
)
def test_an_unknown_word_is_refused_by_name(said: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        target(**said)


@pytest.mark.parametrize("declared", [False, "", None, 1], ids=repr)
def test_a_capability_is_yes_or_a_sentence(declared: Any) -> None:
    """The report shows the sentence for each row that does not apply."""
    with pytest.raises(ValueError, match="objects"):
        target(capabilities={"objects": declared})


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_declares_tells_yes_from_no_from_silence(capability: str) -> None:
    assert target(capabilities={capability: True}).declares(capability) is True
    assert target(capabilities={capability: "no wire code"}).declares(capability) is False
    assert target().declares(capability) is None


def test_defaults_are_not_shared() -> None:
    first, second = target(), target()
    assert first.capabilities is not second.capabilities
    assert first.config is not second.config


def test_a_target_says_things_once() -> None:
    with pytest.raises(FrozenInstanceError):
        target().level = "e2e"  # type: ignore[misc]


@pytest.mark.parametrize("name", [field.name for field in fields(Timeouts)])
@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_deadline_is_positive(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=name):
        Timeouts(**{name: seconds})


def test_a_slow_planes_deadlines_are_taken() -> None:
    assert Timeouts(operation=120).operation == 120


class AlmostAClient:
    """Seven methods, and an attribute in place of the eighth."""

    close = None

    def __getattr__(self, name: str) -> Any:
        if name in CLIENT_METHODS:
            return lambda **_: None
        raise AttributeError(name)


def test_what_is_missing_to_a_client_is_named_in_the_protocols_order() -> None:
    assert list(missing_methods(object())) == list(CLIENT_METHODS)
    assert list(missing_methods(AlmostAClient())) == ["close"]
