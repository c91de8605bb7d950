"""The schema is strict, frozen, and described as JSON schema."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from rlconform.events.schema import AnyEvent, DropCause, Dropped, Trained, json_schema


def test_every_event_has_a_tag_like_its_name() -> None:
    for kind in get_args(AnyEvent):
        tag = str(kind.__struct_config__.tag)
        assert tag.replace("_", "") == kind.__name__.lower()


def test_every_event_is_frozen_and_strict() -> None:
    for kind in get_args(AnyEvent):
        assert kind.__struct_config__.frozen
        assert kind.__struct_config__.forbid_unknown_fields
        assert kind.__doc__


def test_a_cause_is_one_of_a_closed_list() -> None:
    line = b'{"type":"dropped","group_id":"g","cause":"%s"}'
    assert msgspec.json.decode(line % b"stale", type=AnyEvent) == Dropped(
        group_id="g", cause=DropCause.STALE
    )
    with pytest.raises(msgspec.ValidationError, match="cause"):
        msgspec.json.decode(line % b"bad luck", type=AnyEvent)


def test_a_required_field_is_never_filled_in() -> None:
    with pytest.raises(msgspec.ValidationError, match="step"):
        msgspec.json.decode(b'{"type":"trained","group_id":"g","rows":[0]}', type=AnyEvent)


def test_the_json_schema_names_every_event_and_requires_the_envelope() -> None:
    schema = json_schema()
    definitions = schema["$defs"]
    assert {kind.__name__ for kind in get_args(AnyEvent)} <= definitions.keys()
    envelope = ["run", "seq", "clock", "mono_ns", "wall_ns", "source", "event"]
    assert definitions["Record"]["required"] == envelope
    assert set(definitions["Trained"]["required"]) >= {"type", "group_id", "rows", "step"}
    assert definitions["Trained"]["description"] == Trained.__doc__
    assert schema["title"] == "rlconform events, version 1"
