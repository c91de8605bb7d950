"""``PlaneOp``: the event of a call of the data plane."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rlconform.events.event_bases import RunEvent


class PlaneOp(RunEvent, tag="plane_op", frozen=True, kw_only=True):
    """A call of the data plane: written when it is invoked, and again with its outcome.

    ``unknown`` is the outcome of a call that may have had an effect, such as one that timed out.
    """

    op: Literal["put", "get", "claim", "clear", "list"]
    op_id: Annotated[int, Meta(description="Number of the call, unique in its process.")]
    status: Literal["invoked", "ok", "failed", "unknown"]
    partition: str = ""
    task: str | None = None
    keys: (
        Annotated[list[str], Meta(description="Invoked: keys asked for. ok: keys returned.")] | None
    ) = None
    error: Literal["not_found", "timeout", "other"] | None = None
