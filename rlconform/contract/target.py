"""``Target``: a vendor's description of a plane, with which rlconform opens and checks it.

    TARGET = Target(
        name="acme/shm",
        open=lambda cfg, bootstrap: AcmeClient(cfg, attach=not bootstrap),
        capabilities={"objects": True, "dtype_fp8": "the wire format has no fp8 code"},
        level="functional",
    )

The object is named on the command line (``module:TARGET``) or by an entry point of the group
``rlconform.targets``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from rlconform.contract.client import DataPlaneClient

Level = Literal["unit", "functional", "e2e", "durability"]
Isolation = Literal["test", "session", "process"]
Capability = Literal[
    "objects",
    "dtype_fp8",
    "dtype_complex",
    "cuda",
    "group_claims",
    "restart",
    "control",
    "capacity",
]

LEVELS: tuple[Level, ...] = get_args(Level)
#: The levels whose checks each level runs. The last two extend ``functional`` in two directions.
_INCLUDED: Mapping[Level, tuple[Level, ...]] = {
    "unit": ("unit",),
    "functional": ("unit", "functional"),
    "e2e": ("unit", "functional", "e2e"),
    "durability": ("unit", "functional", "durability"),
}
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)

#: Capabilities that a requirement can ask for.
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)


#: Limits of the timeouts that a target may set: with an unlimited one no check could fail.
SHORTEST_QUIET_S = 0.1
LONGEST_SETTLE_S = 10.0


def includes(level: Level, other: Level) -> bool:
    """Whether a certification at ``level`` runs the checks of the level ``other``."""
    return other in _INCLUDED[level]


class PlaneControl(Protocol):
    """Names the plane's processes on this host, which checks kill, stop and slow by their pids.

    A process that holds both rows and the index is named twice.
    """

    def storage_pids(self) -> Sequence[int]:
        """Return the processes that hold rows."""

    def controller_pids(self) -> Sequence[int]:
        """Return the processes that hold the index."""


@dataclass(frozen=True, kw_only=True)
class SmallPlane:
    """How to start the plane with little room, for checks of a full plane.

    Attributes:
        config: Keys that replace those of the run's configuration.
        rows: Most rows of ``row_bytes`` bytes that the plane then holds.
        row_bytes: Size of the rows that the check puts, at least 256.
    """

    config: Mapping[str, Any]
    rows: int
    row_bytes: int = 1024


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Deadlines in seconds; a plane on a slow network may set longer ones.

    Attributes:
        start: Opening the plane and starting its processes.
        operation: One client call that doesn't have to wait for rows.
        settle: From an event (a put returns) to its effect elsewhere (a blocked claim wakes).
        quiet: How long a check waits to see that something does not happen.
        check: One whole check; after that the plane counts as hung.
    """

    start: float = 60.0
    operation: float = 10.0
    settle: float = 2.0
    quiet: float = 0.3
    check: float = 30.0

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            if not 0 < seconds < math.inf:
                raise ValueError(f"Timeouts.{name} must be positive seconds, got {seconds!r}")
        if self.quiet < SHORTEST_QUIET_S:
            raise ValueError(
                f"Timeouts.quiet: expected at least {SHORTEST_QUIET_S} s, got {self.quiet:g}"
            )
        if self.settle > LONGEST_SETTLE_S:
            raise ValueError(
                f"Timeouts.settle: expected at most {LONGEST_SETTLE_S} s, got {self.settle:g}"
            )


@dataclass(frozen=True, kw_only=True)
class Target:
    """A plane under test; ``ValueError`` for an unknown level, isolation or capability.

    Attributes:
        name: Short name for reports, ``vendor/engine`` by custom.
        open: Called as ``open(cfg, bootstrap)`` with the configuration mapping, by default an empty
            one. ``bootstrap`` is True in the owner, which starts the plane, and False in every
            other process, which attaches to it.
        vendor: Shown in the header of a report, with ``version``.
        level: Default ``--level`` of ``rlconform certify``; ``unit`` for a plane of one process.
        capabilities: By name, True or a sentence that says why the plane lacks it. A capability
            that is left out is probed and reported, but no verdict counts it.
        isolation: Whether all checks share one plane (``session``), or each check gets a fresh
            plane (``test``), or a fresh plane and process (``process``).
        config: Configuration used if the user gives none.
        control: Called with the owner's client; returns the ``PlaneControl`` of its plane.
        small: How to start the plane with little room; ``None`` for a plane without a limit.
    """

    name: str
    open: Callable[[Mapping[str, Any], bool], DataPlaneClient]
    vendor: str = ""
    version: str = ""
    level: Level = "unit"
    capabilities: Mapping[str, bool | str] = field(default_factory=dict)
    isolation: Isolation = "session"
    timeouts: Timeouts = field(default_factory=Timeouts)
    config: Mapping[str, Any] = field(default_factory=dict)
    control: Callable[[DataPlaneClient], PlaneControl] | None = None
    small: SmallPlane | None = None

    def __post_init__(self) -> None:
        _one_of("level", self.level, LEVELS)
        _one_of("isolation", self.isolation, ISOLATIONS)
        for name, declared in self.capabilities.items():
            _one_of("capability", name, CAPABILITIES)
            if declared is not True and not (isinstance(declared, str) and declared.strip()):
                raise ValueError(
                    f"capability {name!r} is {declared!r}: expected True, or a sentence that says "
                    f"why not; the report shows it beside each row that does not apply"
                )

    def declares(self, capability: str) -> bool | None:
        """Return True if declared present, False if declared absent, None if undeclared."""
        declared = self.capabilities.get(capability)
        return None if declared is None else declared is True


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {what} {value!r}: expected one of {', '.join(allowed)}")
