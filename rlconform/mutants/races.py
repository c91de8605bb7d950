"""Races between processes: ``ray_store`` with one step made two.

Each target's comment says where such a defect was seen. What the mutants have in common: called by
one process after another, they are right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.ray_store import TARGET as RIGHT
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.mutants import Mutant

_STARTING = threading.Lock()
#: How long a client relies on a status, s.
REMEMBERED_S = 0.03


class RacyClient(RayStoreClient):
    """A client of a plane whose controller is a class of ``races_store`` or ``races_slots``."""

    def __init__(self, controller: str, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        with _started_as(controller):
            super().__init__(cfg, bootstrap)


@contextmanager
def _started_as(controller: str) -> Iterator[None]:
    """Planes are started with this controller, in this block."""
    from rlconform.backends.ray_store import session  # noqa: PLC0415 - it imports Ray
    from rlconform.mutants import races_slots, races_store  # noqa: PLC0415

    with _STARTING:
        name = "Controller"
        right = getattr(session, name)
        room = races_slots if hasattr(races_slots, controller) else races_store
        setattr(session, name, getattr(room, controller))
        try:
            yield
        finally:
            setattr(session, name, right)


class RegistersByPlaceholder(RayStoreClient):
    """Tells the plane the fields of a partition by a row that it puts and clears again."""

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None:
        """Register, with a placeholder in between."""
        register = partial(
            super().register_partition,
            partition_id,
            fields,
            num_samples,
            consumer_tasks,
            grpo_group_size,
            enums,
        )
        register()
        if fields and grpo_group_size is None:
            zeros = {field: torch.zeros(1, 1, dtype=torch.uint8) for field in fields}
            try:
                self.put_samples(["__schema__"], partition_id, TensorDict(zeros, batch_size=[1]))
            except ValueError:  # the fields have rows of another dtype: they are known by now
                return
            self.clear_samples(["__schema__"], partition_id)
            register()


class RemembersStatus(RayStoreClient):
    """Remembers the last status for a while, until its own process puts, claims or clears."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._known: dict[tuple[str, ...], tuple[float, bool]] = {}

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """The answer, or that of a moment ago."""
        key = (str(partition_id), *map(str, task_names or ()))
        asked, answer = self._known.get(key, (0.0, False))
        if time.monotonic() - asked > REMEMBERED_S:
            answer = super().check_consumption_status(partition_id, task_names)
            self._known[key] = (time.monotonic(), answer)
        return answer

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put, and forget the status."""
        self._known.clear()
        return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, and forget the status."""
        self._known.clear()
        return super().claim_meta(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        """Clear, and forget the status."""
        self._known.clear()
        super().clear_samples(*args, **kwargs)


def _mutant(
    name: str,
    opener: Callable[[Mapping[str, Any], bool], DataPlaneClient],
    fails: tuple[str, ...],
    evidence: str,
    may_fail: tuple[str, ...] = (),
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
        chance=True,
    )


def _store(
    name: str,
    controller: str,
    fails: tuple[str, ...],
    evidence: str,
    may_fail: tuple[str, ...] = (),
) -> Mutant:
    return _mutant(name, partial(RacyClient, controller), fails, evidence, may_fail)


#: A put sent the ready bit first and the tags in a second message; under a tight poller a good
#: third of the claims came without tags (TQ-04).
TAGS_AFTER_FIELDS = _store("tags_after_fields", "TagsAfterFields", ("TAG-04",), "tags-late")

#: A read looked up where its rows lie and fetched them in a second message; what was cleared and
#: put in between gave another row's bytes (TQ-06, TQ-11).
READS_THE_SLOT = _store("reads_the_slot", "ReadsTheSlot", ("CLEAR-07",), "wrong-row")

#: A put looked up its rows' indexes and wrote in a second message, over whoever owned them by then;
#: no adapter can mend it (TQ-06).
WRITES_THE_SLOT = _store(
    "writes_the_slot", "WritesTheSlot", ("CLEAR-07",), "", may_fail=("CLAIM-10",)
)

#: A claim took internal indexes and looked up their keys later: 656 ids of 4,419 claims were null.
KEYS_LOOKED_UP_LATER = _store(
    "keys_looked_up_later", "LooksUpKeysLater", ("CLAIM-10",), "null-id", may_fail=("CLEAR-07",)
)

#: A partition was registered by a schema row, put and cleared: consumers claimed 272 of them
#: (NR-17).
REGISTERS_BY_PLACEHOLDER = _mutant(
    "registers_by_placeholder", RegistersByPlaceholder, ("LIFE-08",), "phantom"
)

#: Two stampers read the tags, add a key and write all of them back: one key is gone.
REPLACES_TAGS = _store("replaces_tags", "ReplacesTags", ("TAG-07",), "lost-update")

#: A claim listed what is ready and marked it in a second step: two consumers got the same rows.
TWO_CLAIMERS = _store(
    "two_claimers",
    "ChoosesThenMarks",
    ("CLAIM-02",),
    "duplicated",
    may_fail=("CLAIM-10", "CLEAR-07", "CLAIM-12", "LOAD-01", "FAULT-04"),
)

#: A put's status update was lost or late while others wrote: it had returned, and nobody saw the
#: rows (TQ-08).
ACKNOWLEDGED_EARLY = _store(
    "acknowledged_early",
    "AcknowledgedEarly",
    ("GET-10",),
    "stale-read",
    may_fail=("CLEAR-07", "CLAIM-10", "REG-06", "PUT-22", "STAT-01", "TAG-07"),
)

#: A store of one object for each row and field showed a put column by column (MC-09).
COLUMN_BY_COLUMN = _store("column_by_column", "ColumnByColumn", ("PUT-22",), "torn")

#: A store refused to overwrite a row while a reader held it (MC-09).
BUSY_WHILE_READ = _store(
    "busy_while_read",
    "BusyWhileRead",
    ("PUT-13",),
    "refused",
    may_fail=("CLEAR-07", "CLAIM-10", "PUT-22", "LIFE-05"),
)

#: Each process relied on what it had been told of the barrier a moment before.
REMEMBERS_STATUS = _mutant(
    "remembers_status", RemembersStatus, ("STAT-02",), "non-monotonic", may_fail=("STAT-01",)
)

#: A dict of fields grew while a claim walked over it: the controller's thread was dead (NR-16).
SCHEMA_GROWS_WHILE_READ = _store(
    "schema_grows_while_read", "SchemaGrowsWhileRead", ("REG-06",), "refused"
)

#: A claim that found one of its rows cleared gave up all of them, and they stayed claimed (TQ-09).
DROPS_CLAIM_OF_CLEARED_ROW = _store(
    "drops_claim_of_cleared_row", "DropsClaimOfClearedRow", ("CLEAR-07",), "lost"
)

#: Counters that two calls update at once miss one of them: the status barrier lies (TQ-08).
COUNTS_IN_TWO_STEPS = _store("counts_in_two_steps", "CountsInTwoSteps", ("STAT-01",), "-status")
