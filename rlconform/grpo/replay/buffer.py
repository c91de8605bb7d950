"""``ReplayBuffer``: the prompt groups between dispatch and training; their rows are in the plane.

    rollout pump ── wait_for_slot, reserve ─▶ slot ◀── commit ── rows are in the plane, rewarded
    sampler      ── ready_*, take ──────────▶ slots ── mark_trained ──▶ release_trained
                 ── drop ───────────────────▶ slot free, rows cleared in the plane

The buffer has metas and summaries of rows, never rows. It is used in one event loop. Between two
``await`` nothing else runs, so each method sees and leaves a consistent state.

A slot is taken by ``reserve`` and is free again when its group was dropped, or was trained and the
generation engines have the new weights. Capacity is the number of slots in use, not a semaphore:
no error or cancellation can lose a permit.

Example:
    key = buffer.reserve(prompt, weight_version=3)
    buffer.commit(key, record)            # READY
    slots = buffer.take([key])            # TRAINING
    buffer.mark_trained([key])            # TRAINED
    buffer.release_trained()              # free, once the engines have the new weights

The names are those of NeMo-RL's ``TQReplayBuffer``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice

from rlconform.contract import KVBatchMeta
from rlconform.grpo.replay.changed import Changed
from rlconform.grpo.replay.errors import BufferFull, DuplicateGroup, RestoreError, UnknownGroup
from rlconform.grpo.replay.slots import (
    DropReason,
    GroupRecord,
    Prompt,
    SavedGroup,
    Slot,
    SlotIndex,
    SlotState,
)
from rlconform.grpo.run_events import RunEvents
from rlconform.plane import mint_sample_ids

#: Clears rows in the plane.
ClearRows = Callable[[list[str]], Awaitable[None]]
#: Called with each group after it was dropped.
OnDrop = Callable[[Slot, DropReason], None]


class ReplayBuffer:
    """Slots of prompt groups of ``group_size`` rows, at most ``capacity`` at once."""

    def __init__(
        self, capacity: int, group_size: int, partition_id: str, clear_rows: ClearRows,
        events: RunEvents | None = None,
    ) -> None:  # fmt: skip
        self.capacity = capacity
        self.group_size = group_size
        self.partition_id = partition_id
        self.changed = Changed()
        self.on_drop: OnDrop = lambda _slot, _reason: None
        #: Groups by fate since the run began: ``trained`` and each reason for a drop.
        self.fates: Counter[str] = Counter()
        self.events = events or RunEvents()
        self._clear_rows = clear_rows
        self._slots: dict[str, Slot] = {}
        self._reserved: SlotIndex[int] = SlotIndex()  # by start version
        self._ready: SlotIndex[int] = SlotIndex()  # by start version
        self._ready_for: SlotIndex[int | None] = SlotIndex()  # by target step
        self._ready_order: dict[str, None] = {}
        self._of_step: Counter[int | None] = Counter()  # all states, by target step
        self._trained: list[str] = []

    @property
    def size(self) -> int:
        """Number of slots in use."""
        return len(self._slots)

    @property
    def ready_count(self) -> int:
        """Number of groups that are ready to be trained on."""
        return self._ready.size

    def state_counts(self) -> dict[str, int]:
        """Return the number of slots by state."""
        counts = Counter(slot.state.value for slot in self._slots.values())
        return {state.value: counts[state.value] for state in SlotState}

    def count_for_target_step(self, step: int | None) -> int:
        """Return the number of groups for this step, in whatever state."""
        return self._of_step[step]

    async def wait_for_slot(self) -> None:
        """Wait until a slot is free; reserve it before the next ``await``."""
        await self.changed.until(lambda: self.size < self.capacity)

    def reserve(self, prompt: Prompt, weight_version: int) -> str:
        """Take a slot for an attempt of a prompt, stamped with the weights that it starts with.

        Returns the group's id. Raises ``BufferFull`` or ``DuplicateGroup``.
        """
        if self.size >= self.capacity:
            raise BufferFull(f"all {self.capacity} slots are in use")
        if prompt.group_id in self._slots:
            raise DuplicateGroup(f"group {prompt.group_id!r} is in the buffer already")
        slot = Slot(prompt, weight_version, prompt.target_step)
        self._insert(slot)
        uid, dispatched = prompt.problem.uid, prompt.dispatch_version
        self.events.dispatched(slot.group_id, uid, dispatched, prompt.attempt)
        self.changed.notify()
        return slot.group_id

    def commit(self, group_id: str, record: GroupRecord) -> KVBatchMeta:
        """Make a reserved group ready: its rows are in the plane, and their rewards are known.

        Raises:
            UnknownGroup: The group was dropped meanwhile; the caller clears its rows.
            TornGroupRecord: The record has other rows than the group, or no version.
        """
        self._make_ready(self._slot(group_id, SlotState.RESERVED), record)
        self.events.committed(group_id, record.summaries)
        self.changed.notify()
        return record.meta

    def _make_ready(self, slot: Slot, record: GroupRecord) -> None:
        group_id = slot.group_id
        record.check(group_id, self.row_ids(group_id), slot.start_version)
        self._reserved.discard(slot.start_version, group_id)
        slot.record, slot.state = record, SlotState.READY
        self._ready.add(slot.start_version, group_id)
        self._ready_for.add(slot.target_step, group_id)
        self._ready_order[group_id] = None

    def start_version(self, group_id: str) -> int:
        """Return the weight version with which a group started."""
        return self._slot(group_id, *SlotState).start_version

    def row_ids(self, group_id: str) -> list[str]:
        """Return the ids of a group's rows."""
        return mint_sample_ids([group_id], self.group_size)

    def ready_by_start(self) -> list[tuple[int, int]]:
        """Return (start version, number of ready groups), oldest first."""
        return sorted(self._ready.counts().items())

    def ready_of_start(self, version: int, most: int) -> list[str]:
        """Return ready groups of a start version, at most ``most``, in order of readiness."""
        return list(islice(self._ready.of(version), most))

    def ready_first(self, most: int) -> list[str]:
        """Return the groups that were ready first, at most ``most``."""
        return list(islice(self._ready_order, most))

    def ready_of_step(self, step: int | None) -> list[str]:
        """Return the ready groups for a step in the order in which they were dispatched."""
        return sorted(self._ready_for.of(step), key=lambda key: self._slots[key].prompt.sequence)

    def reserved_starts(self) -> list[int]:
        """Return the start versions of groups that are being generated, oldest first."""
        return sorted(self._reserved.counts())

    def reserved_of_start(self, version: int) -> list[str]:
        """Return the groups that are being generated since this version."""
        return list(self._reserved.of(version))

    def take(self, group_ids: Sequence[str]) -> list[Slot]:
        """Hand ready groups to a training step."""
        slots = [self._slot(group_id, SlotState.READY) for group_id in group_ids]
        for slot in slots:
            self._unindex(slot)
            slot.state = SlotState.TRAINING
        self.changed.notify()
        return slots

    def training_slots(self, group_ids: Sequence[str]) -> list[Slot]:
        """Return the slots of groups that a step has taken; ``UnknownGroup`` for others."""
        return [self._slot(group_id, SlotState.TRAINING) for group_id in group_ids]

    def mark_trained(self, group_ids: Iterable[str]) -> None:
        """Note that the groups' gradients are in the weights."""
        for group_id in group_ids:
            self._slot(group_id, SlotState.TRAINING).state = SlotState.TRAINED
            self._trained.append(group_id)
            self.fates["trained"] += 1
        self.changed.notify()

    def release_trained(self) -> int:
        """Free the slots of trained groups, once all engines have the new weights."""
        released, self._trained = self._trained, []
        for group_id in released:
            self._forget(self._slots[group_id])
        self.changed.notify()
        return len(released)

    def promote_ready_group(self, to_target_step: int) -> Slot | None:
        """Move the earliest ready group of a later step to a step that lacks one; return it."""
        steps = self._ready_for.counts()
        later = [step for step in steps if step is not None and step > to_target_step]
        if not later:
            return None
        group_id = self.ready_of_step(min(later))[0]
        slot = self._slots[group_id]
        self._ready_for.discard(slot.target_step, group_id)
        self._of_step[slot.target_step] -= 1
        slot.target_step = to_target_step
        self._of_step[to_target_step] += 1
        self._ready_for.add(to_target_step, group_id)
        self.changed.notify()
        return slot

    async def remove_group(
        self, group_id: str, reason: DropReason, remove_in_dp: bool = True
    ) -> None:
        """Drop one group, see ``remove``."""
        await self.remove([group_id], reason, remove_in_dp)

    async def remove(
        self, group_ids: Sequence[str], reason: DropReason, remove_in_dp: bool = True
    ) -> None:
        """Drop groups: free their slots, count them, and clear their rows in the plane.

        ``remove_in_dp=False`` leaves the rows, for a plane that has lost them already. Raises
        ``UnknownGroup`` if a group is not in the buffer or is trained already.
        """
        slots = [
            self._slot(group_id, SlotState.RESERVED, SlotState.READY, SlotState.TRAINING)
            for group_id in group_ids
        ]
        for slot in slots:
            self._unindex(slot)
            self._forget(slot)
            self.fates[reason.value] += 1
        self.events.dropped(group_ids, reason.value)
        for slot in slots:
            self.on_drop(slot, reason)
        self.changed.notify()
        if remove_in_dp and slots:
            await self._clear_rows([row for slot in slots for row in self.row_ids(slot.group_id)])
            self.events.cleared(group_ids)

    def slots(self, *states: SlotState) -> list[Slot]:
        """Return the slots in these states in the order in which they were reserved."""
        return [slot for slot in self._slots.values() if slot.state in states]

    def state_dict(self) -> list[SavedGroup]:
        """Return the ready groups, for a checkpoint between two steps; they don't have the rows.

        ``RestoreError`` while a step is being trained.
        """
        if self.slots(SlotState.TRAINING, SlotState.TRAINED):
            raise RestoreError("a checkpoint is made between two steps, after the weight sync")
        return [
            SavedGroup(slot.prompt, slot.start_version, slot.target_step, slot.record)
            for slot in self.slots(SlotState.READY)
            if slot.record is not None
        ]

    def load_state_dict(self, groups: Sequence[SavedGroup]) -> None:
        """Make the groups of a checkpoint ready; their rows must be put into the plane again.

        ``RestoreError`` if they don't fit: to leave out groups would leave a step without its
        prompts, which waits for ever.
        """
        if len(groups) > self.capacity - self.size:
            raise RestoreError(
                f"the checkpoint has {len(groups)} ready groups, and async_rl."
                f"max_buffered_rollouts is {self.capacity}: raise it to resume"
            )
        for group in groups:
            slot = Slot(group.prompt, group.start_version, group.target_step)
            self._insert(slot)
            self._make_ready(slot, group.record)
        self.changed.notify()

    def _slot(self, group_id: str, *states: SlotState) -> Slot:
        slot = self._slots.get(group_id)
        if slot is None or slot.state not in states:
            state = "not in the buffer" if slot is None else slot.state.value
            wanted = " or ".join(each.value for each in states)
            raise UnknownGroup(f"expected group {group_id!r} to be {wanted}; it is {state}")
        return slot

    def _insert(self, slot: Slot) -> None:
        self._slots[slot.group_id] = slot
        self._reserved.add(slot.start_version, slot.group_id)
        self._of_step[slot.target_step] += 1

    def _unindex(self, slot: Slot) -> None:
        self._reserved.discard(slot.start_version, slot.group_id)
        self._ready.discard(slot.start_version, slot.group_id)
        self._ready_for.discard(slot.target_step, slot.group_id)
        self._ready_order.pop(slot.group_id, None)

    def _forget(self, slot: Slot) -> None:
        del self._slots[slot.group_id]
        self._of_step[slot.target_step] -= 1
        if not self._of_step[slot.target_step]:
            del self._of_step[slot.target_step]
