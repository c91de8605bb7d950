"""``Slot``: one place of the replay buffer, which one prompt group holds from reserve to release.

reserve ──▶ RESERVED ── commit ──▶ READY ── take ──▶ TRAINING ── trained ──▶ TRAINED
               │                     │                  │                       │
               └─────────────────────┴── drop(reason) ──┘     weights applied ──┴──▶ free
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from rlconform.contract import KVBatchMeta
from rlconform.grpo.replay.errors import TornGroupRecord
from rlconform.grpo.replay.versions import GroupVersions
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.tasks import Problem

K = TypeVar("K", bound=Hashable)


class SlotState(Enum):
    """Where a group is."""

    RESERVED = "reserved"  # its rows are being generated
    READY = "ready"  # its rows are in the plane, with their rewards
    TRAINING = "training"  # a step has taken it
    TRAINED = "trained"  # its gradient is in the weights, which the engines don't all have yet


class DropReason(Enum):
    """Why a group is not trained on; the only reasons that there are."""

    STALE = "stale"  # ready, but too old
    ABORTED_STALE = "aborted_stale"  # too old while it was generated
    ABORTED_SYNC = "aborted_sync"  # aborted for a weight sync, and generated anew
    FILTERED_UNIFORM = "filtered_uniform"  # all rewards equal (dynamic sampling)
    INFRA_FAILURE = "infra_failure"
    DATA_FAILURE = "data_failure"
    MODEL_FAILURE = "model_failure"
    OVERLOAD = "overload"  # the trajectory queue was full
    REWARD_FAILURE = "reward_failure"  # too few of its rows have a reward
    RESTART = "restart"  # its rows were lost with the plane
    SHUTDOWN = "shutdown"


class Failure(Enum):
    """The class of an attempt's failure; each class has a budget of retries."""

    INFRA = "infra"  # an actor or the plane was lost or full, or the deadline passed
    DATA = "data"  # the task refused the prompt, or raised
    MODEL = "model"  # the policy wrote nothing, or NaN
    REWARD = "reward"  # too few of the group's rows got a reward
    STALE = "stale"  # its weights were too old, or were replaced while it was generated


@dataclass(frozen=True)
class Prompt:
    """A problem to generate a group for, and what its attempts have in common."""

    problem: Problem
    sequence: int  # number of the dispatch in the run, from 0
    dispatch_version: int
    target_step: int | None = None  # step that it is for; None for any
    attempt: int = 0
    failures: tuple[Failure, ...] = ()  # of the attempts so far

    @property
    def group_id(self) -> str:
        """Key of this attempt's group, unique in the run; the rows are ``<group_id>_g<i>``."""
        return self.problem.uid if self.attempt == 0 else f"{self.problem.uid}-r{self.attempt}"


@dataclass(frozen=True)
class GroupRecord:
    """A group whose rows are in the plane."""

    meta: KVBatchMeta
    summaries: tuple[RowSummary, ...]  # one per row
    end_version: int | None  # highest weight version of any token

    @property
    def rewarded_rows(self) -> list[int]:
        """The numbers of the rows that have a reward, which are trained on."""
        return [row for row, one in enumerate(self.summaries) if one.reward is not None]

    def check(self, group_id: str, ids: Sequence[str], start_version: int) -> None:
        """Raise ``TornGroupRecord`` if the record has other rows than the group, or no version."""
        if self.meta.sample_ids != ids or len(self.summaries) != len(ids):
            raise TornGroupRecord(
                f"group {group_id!r}: expected the rows {ids} with a summary each; got "
                f"{self.meta.sample_ids} with {len(self.summaries)} summaries"
            )
        if self.end_version is None or self.end_version < start_version:
            raise TornGroupRecord(
                f"group {group_id!r}: expected an end version of at least {start_version}, "
                f"its start; got {self.end_version}"
            )


@dataclass
class Slot:
    """The group in one place of the buffer."""

    prompt: Prompt
    start_version: int
    target_step: int | None  # the prompt's, unless the group was promoted
    state: SlotState = SlotState.RESERVED
    record: GroupRecord | None = None

    @property
    def group_id(self) -> str:
        """The group's key."""
        return self.prompt.group_id

    def versions(self, consumed: int | None = None) -> GroupVersions:
        """Return the group's versions; ``consumed`` is the trainer's version when it is taken."""
        end = None if self.record is None else self.record.end_version
        return GroupVersions(self.prompt.dispatch_version, self.start_version, end, consumed)


@dataclass(frozen=True)
class SavedGroup:
    """A ready group in a checkpoint."""

    prompt: Prompt
    start_version: int
    target_step: int | None
    record: GroupRecord


class SlotIndex(Generic[K]):
    """Group ids by a key, in the order in which they were added; every operation is O(1)."""

    def __init__(self) -> None:
        self._ids: dict[K, dict[str, None]] = {}
        self.size = 0

    def add(self, key: K, group_id: str) -> None:
        """Add a group under a key."""
        self._ids.setdefault(key, {})[group_id] = None
        self.size += 1

    def discard(self, key: K, group_id: str) -> None:
        """Remove a group, if it is there."""
        ids = self._ids.get(key)
        if ids is not None and group_id in ids:
            del ids[group_id]
            self.size -= 1
            if not ids:
                del self._ids[key]

    def of(self, key: K) -> Iterator[str]:
        """Iterate over the groups of a key; don't change the index meanwhile."""
        return iter(self._ids.get(key, ()))

    def counts(self) -> dict[K, int]:
        """Return the number of groups of each key that has one."""
        return {key: len(ids) for key, ids in self._ids.items()}
