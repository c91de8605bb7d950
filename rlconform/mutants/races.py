"""Races between processes: ``ray_store`` with one step made two.

Each target's story says where such a defect was seen. What the mutants have in common: called by
one process after another, they are right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from rlconform.backends.ray_store import TARGET as RIGHT
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import DataPlaneClient
from rlconform.mutants import Mutant
from rlconform.mutants.races_clients import (
    KeepsWhatItRead,
    RegistersByPlaceholder,
    RemembersStatus,
    SharesAConnectionFromAfar,
)

_STARTING = threading.Lock()


class RacyClient(RayStoreClient):
    """A client of a plane whose controller is a class of one of the modules of controllers."""

    def __init__(self, controller: str, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        with _started_as(controller):
            super().__init__(cfg, bootstrap)


@contextmanager
def _started_as(controller: str) -> Iterator[None]:
    """Planes are started with this controller, in this block."""
    from rlconform.backends.ray_store import connection  # noqa: PLC0415 - it imports Ray
    from rlconform.mutants import races_slots, races_store, races_writers_store  # noqa: PLC0415

    rooms = (races_slots, races_store, races_writers_store)
    with _STARTING:
        name = "Controller"
        right = getattr(connection, name)
        (racy,) = (vars(room)[controller] for room in rooms if controller in vars(room))
        setattr(connection, name, racy)
        try:
            yield
        finally:
            setattr(connection, name, right)


def _mutant(
    name: str,
    opener: Callable[[Mapping[str, Any], bool], DataPlaneClient],
    story: str,
    fails: tuple[str, ...],
    evidence: str,
    may_fail: tuple[str, ...] = (),
    chance: bool = True,
) -> Mutant:
    return Mutant(
        name=f"mutant/{name}",
        vendor="rlconform",
        open=opener,
        level=RIGHT.level,
        capabilities=RIGHT.capabilities,
        timeouts=RIGHT.timeouts,
        config={**RIGHT.config, "name": name},
        control=RIGHT.control,
        wraps=RIGHT.name,
        fails=fails,
        evidence=evidence,
        may_fail=may_fail,
        chance=chance,
        story=story,
    )


def _store(
    name: str,
    controller: str,
    story: str,
    fails: tuple[str, ...],
    evidence: str,
    may_fail: tuple[str, ...] = (),
) -> Mutant:
    return _mutant(name, partial(RacyClient, controller), story, fails, evidence, may_fail)


TAGS_AFTER_FIELDS = _store(
    "tags_after_fields",
    "TagsAfterFields",
    "A put sent the ready bit first and the tags in a second message; under a tight poller a "
    "good third of the claims came without tags (TQ-04).",
    ("TAG-04",),
    "tags-late",
)

READS_THE_SLOT = _store(
    "reads_the_slot",
    "ReadsTheSlot",
    "A read looked up where its rows lie and fetched them in a second message; what was cleared"
    " and put in between gave another row's bytes (TQ-06, TQ-11).",
    ("CLEAR-07",),
    "wrong-row",
)

WRITES_THE_SLOT = _store(
    "writes_the_slot",
    "WritesTheSlot",
    "A put looked up its rows' indexes and wrote in a second message, over whoever owned them "
    "by then; no adapter can mend it (TQ-06).",
    ("CLEAR-07",),
    "",
    may_fail=("CLAIM-10",),
)

KEYS_LOOKED_UP_LATER = _store(
    "keys_looked_up_later",
    "LooksUpKeysLater",
    "A claim took internal indexes and looked up their keys later: 656 ids of 4,419 claims were"
    " null.",
    ("CLAIM-10",),
    "null-id",
    may_fail=("CLEAR-07",),
)

REGISTERS_BY_PLACEHOLDER = _mutant(
    "registers_by_placeholder",
    RegistersByPlaceholder,
    "A partition was registered by a schema row, put and cleared: consumers claimed 272 of them"
    " (NR-17).",
    ("LIFE-08",),
    "phantom",
)

REPLACES_TAGS = _store(
    "replaces_tags",
    "ReplacesTags",
    "Two stampers read the tags, add a key and write all of them back: one key is gone.",
    ("TAG-07",),
    "lost-update",
)

TWO_CLAIMERS = _store(
    "two_claimers",
    "ChoosesThenMarks",
    "A claim listed what is ready and marked it in a second step: two consumers got the same rows.",
    ("CLAIM-02",),
    "duplicated",
    may_fail=("CLAIM-10", "CLEAR-07", "CLAIM-12", "LOAD-01", "FAULT-04"),
)

ACKNOWLEDGED_EARLY = _store(
    "acknowledged_early",
    "AcknowledgedEarly",
    "A put's status update was lost or late while others wrote: it had returned, and nobody saw"
    " the rows (TQ-08).",
    ("GET-10",),
    "stale-read",
    may_fail=("CLEAR-07", "CLAIM-10", "REG-06", "PUT-22", "STAT-01", "TAG-07"),
)

COLUMN_BY_COLUMN = _store(
    "column_by_column",
    "ColumnByColumn",
    "A store of one object for each row and field showed a put column by column (NR-14, MC-09).",
    ("PUT-22",),
    "torn",
)

BUSY_WHILE_READ = _store(
    "busy_while_read",
    "BusyWhileRead",
    "A store refused to overwrite a row while a reader held it (MC-09).",
    ("PUT-13",),
    "refused",
    may_fail=("CLEAR-07", "CLAIM-10", "PUT-22", "LIFE-05"),
)

SHARES_A_CONNECTION_FROM_AFAR = _mutant(
    "shares_a_connection_from_afar",
    SharesAConnectionFromAfar,
    "An async actor's threads shared one connection; in the driver each call had its own (TQ-10).",
    ("LIFE-05",),
    "wrong-row",
)

REMEMBERS_STATUS = _mutant(
    "remembers_status",
    RemembersStatus,
    "Each process relied on what it had been told of the barrier a moment before.",
    ("STAT-02",),
    "non-monotonic",
    may_fail=("STAT-01",),
)

SCHEMA_GROWS_WHILE_READ = _store(
    "schema_grows_while_read",
    "SchemaGrowsWhileRead",
    "A dict of fields grew while a claim walked over it: the controller's thread was dead (NR-16).",
    ("REG-06",),
    "refused",
)

DROPS_CLAIM_OF_CLEARED_ROW = _store(
    "drops_claim_of_cleared_row",
    "DropsClaimOfClearedRow",
    "A claim that found one of its rows cleared gave up all of them, and they stayed claimed "
    "(TQ-09).",
    ("CLEAR-07",),
    "lost",
)

COUNTS_IN_TWO_STEPS = _store(
    "counts_in_two_steps",
    "CountsInTwoSteps",
    "Counters that two calls update at once miss one of them: the status barrier lies (TQ-08).",
    ("STAT-01",),
    "-status",
)

KEEPS_WHAT_IT_READ = _mutant(
    "keeps_what_it_read",
    KeepsWhatItRead,
    "Writer and reader each worked on a copy of their own; in one process nothing showed (NR-61).",
    ("GET-10", "PUT-13", "PUT-22", "CLEAR-01", "CLEAR-07"),
    "row 0 of 'x' = row:",
    chance=False,
)
