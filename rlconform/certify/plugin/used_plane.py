"""Lets a plane and a partition look used before a scattered check begins.

take_steps      once on each plane: earlier steps of the owner and the attached processes
Beginning       for each partition: early looks ─▶ registration ─▶ earlier rows ─▶ early looks
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rlconform.certify.assertions.expect import FewerExamples
from rlconform.certify.isolation.client_actor import ClientActor
from rlconform.certify.isolation.remote_client import RemoteClient
from rlconform.certify.isolation.scattering_client import ScatteringClient
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.shorten import error_text
from rlconform.certify.scenarios.earlier_rows import EarlierRows
from rlconform.certify.scenarios.earlier_steps import (
    BUDGET_S,
    STEPS,
    Stepper,
    make_steps,
    take_earlier_steps,
)
from rlconform.certify.scenarios.early_looks import has_early_looks, look_early
from rlconform.certify.scenarios.partition import TASKS, PartitionUnderTest
from rlconform.certify.threads import BackgroundCall

#: Partitions of a check that get earlier rows, of 2,100 each: a plane may hold 100,000 at most.
MOST_WITH_EARLIER_ROWS = 8


def take_steps(plane: PlaneSession, attached: Sequence[RemoteClient]) -> None:
    """Let the processes make earlier steps, once on each plane that several checks use.

    A failure ends the steps with a note of the report; the checks judge the plane.
    """
    if plane.took_steps or plane.target.isolation == "test":
        return
    plane.took_steps = True

    def by(client: RemoteClient) -> Stepper:
        return lambda steps: client.ask("earlier steps", BUDGET_S, ClientActor.make_steps, steps)

    processes: list[Stepper] = [partial(make_steps, plane.owner()), *map(by, attached)]
    steps = BackgroundCall(lambda: take_earlier_steps(processes), "earlier steps")
    try:
        with plane.starting.running():
            made = steps.result(BUDGET_S + plane.target.timeouts.operation)
    except Exception as error:  # noqa: BLE001 - a plane may raise anything
        text = f"earlier steps ended by {error_text(error)}"
    else:
        text = f"time for {made} of {STEPS} earlier steps only" if made < STEPS else ""
    if text:
        warnings.warn(text, FewerExamples, stacklevel=1)


@dataclass(frozen=True)
class Beginning:
    """What happens in a partition before a check uses it.

    Attributes:
        lookers: Clients that look at the partition before and after its registration, in turn.
        rows: What puts the earlier rows; None for a partition without.
    """

    lookers: Sequence[Any] = ()
    rows: EarlierRows | None = None

    @classmethod
    def of(cls, check: str, seed: int, client: ScatteringClient, rows: EarlierRows) -> Beginning:
        """Return the beginning of a scattered check, which its id and the seed decide."""
        return cls(
            client.clients if has_early_looks(check, seed) else (),
            rows if rows.wanted(check, seed) else None,
        )

    def of_partition(self, number: int) -> Beginning:
        """Return the beginning of a check's partition with this number, from 0."""
        return self if number < MOST_WITH_EARLIER_ROWS else replace(self, rows=None)

    def register(self, part: PartitionUnderTest, options: Mapping[str, Any]) -> None:
        """Register the partition; one with groups gets no earlier rows, which would be a group."""
        views = list(map(part.via, self.lookers))
        tasks = options.get("tasks", TASKS)
        look_early(views, tasks)
        if self.rows is None or "grpo_group_size" in options:
            part.register(**options)
        else:
            self.rows.register(part, **options)
        look_early(views, tasks)
