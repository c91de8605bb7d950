"""The stall watchdog: ends, or reports, an asynchronous run that does not go on.

    watch ── every ``interval`` ── looks at the count of changes ──▶ unchanged for stall_timeout?
                                                   └─ describe_stall(view) ──▶ StallError

Anything that happens to a group, and each stage of a training step, is a change. A stall is found
also when nothing is in flight. ``stall_timeout`` must be longer than the longest stage of a step.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlconform.grpo.config.async_rl import StallWatchdogConfig

_SHOWN = 3


class StallError(RuntimeError):
    """Nothing has happened for ``stall_watchdog.stall_timeout``; the message says what waits."""


@dataclass(frozen=True)
class RunView:
    """What the watchdog sees of a run."""

    version: int
    stage: str  # of the trainer: "waits for groups", or what it does
    step_groups: int  # groups that the step has taken
    step_wanted: int
    slots: Mapping[str, int]  # by state
    capacity: int
    generating: tuple[str, ...]  # groups in actors
    queued: int  # prompts that wait for an attempt
    paused: bool
    all_dispatched: bool


def describe_stall(view: RunView, seconds: float) -> str:
    """Say in a sentence each what waits for what."""
    waits = [
        f"nothing has happened for {seconds:g} s at version {view.version}: the trainer "
        f"{view.stage}, with {view.step_groups} of {view.step_wanted} groups of its step"
    ]
    ready = view.slots.get("ready", 0)
    if ready:
        waits.append(f"{ready} groups are ready and nobody takes them")
    if view.generating:
        shown = ", ".join(view.generating[:_SHOWN])
        more = len(view.generating) - _SHOWN
        waits.append(
            f"{len(view.generating)} groups are being generated: {shown}"
            + (f" and {more} more" if more > 0 else "")
        )
    else:
        waits.append("nothing is in flight")
    if view.queued:
        used = sum(view.slots.values())
        cause = "dispatch is paused" if view.paused else f"{used} of {view.capacity} slots are used"
        waits.append(f"{view.queued} prompts wait for an attempt: {cause}")
    elif view.all_dispatched:
        waits.append("all prompts of the run are dispatched")
    else:
        waits.append("the sampler admits no further prompts")
    return "; ".join(waits)


async def watch(
    options: StallWatchdogConfig, changes: Callable[[], int], view: Callable[[], RunView]
) -> None:
    """Look until cancelled; raise ``StallError``, or warn, when nothing changes for too long."""
    clock = asyncio.get_running_loop().time
    seen, since = changes(), clock()
    while True:
        await asyncio.sleep(options.interval)
        if changes() != seen:
            seen, since = changes(), clock()
            continue
        stalled = clock() - since
        if stalled >= options.stall_timeout:
            message = describe_stall(view(), stalled)
            if options.action == "abort":
                raise StallError(message)
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            since = clock()
