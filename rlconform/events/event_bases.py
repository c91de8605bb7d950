"""The base classes of events: of all, of those about a group, and of those about a row of it."""

from __future__ import annotations

from msgspec import Struct

from rlconform.events.vocabulary import Attempt, GroupId, Row


class RunEvent(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", gc=False
):
    """The base class of all events."""


class GroupEvent(RunEvent, frozen=True, kw_only=True):
    """The base class of all events that are about one group."""

    group_id: GroupId


class RowEvent(GroupEvent, frozen=True, kw_only=True):
    """The base class of all events that are about one row of a group."""

    row: Row
    attempt: Attempt = 0
