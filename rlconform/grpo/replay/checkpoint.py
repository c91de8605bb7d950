"""The asynchronous part of a checkpoint: ready groups, and prompts that have none.

    save ── SavedRun.of(buffer, ...) ──▶ JSON     rows are saved beside it, or not at all
    load ── SavedRun.parse(text, ...) ──▶ groups to restore, prompts to dispatch again

A plane may end with the driver, so its rows count as lost after a restart. A ready group whose rows
aren't saved is dropped with the reason ``restart``, and its prompt is dispatched again. So every
prompt that was dispatched is trained on once, also over restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.errors import RestoreError
from rlconform.grpo.replay.slots import Failure, Prompt, SavedGroup
from rlconform.grpo.rollout.prompt_queue import PromptQueue

FORMAT = 1


@dataclass(frozen=True)
class SavedRun:
    """What an asynchronous run had dispatched and not yet trained on."""

    format: int
    partition_id: str
    group_size: int
    groups: list[SavedGroup]
    unfinished: list[Prompt]
    batches: int  # steps whose prompts were dispatched
    dispatched: int
    skipped: dict[Failure, int]
    lost: list[tuple[int | None, int]]  # steps that lack prompts, and how many
    fates: dict[str, int]

    @classmethod
    def of(
        cls, buffer: ReplayBuffer, queue: PromptQueue, unfinished: Iterable[Prompt], batches: int
    ) -> SavedRun:
        """Collect the state between two steps; ``RestoreError`` while a step is being trained."""
        return cls(
            format=FORMAT,
            partition_id=buffer.partition_id,
            group_size=buffer.group_size,
            groups=buffer.state_dict(),
            unfinished=list(unfinished),
            batches=batches,
            dispatched=queue.dispatched,
            skipped=dict(queue.skipped),
            lost=list(queue.lost.items()),
            fates=dict(buffer.fates),
        )

    def dump(self) -> str:
        """Return the state as JSON."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def parse(cls, text: str, *, expected_partition_id: str, expected_group_size: int) -> SavedRun:
        """Read the state; ``RestoreError`` if it is incomplete or doesn't fit the configuration."""
        try:
            saved = _ADAPTER.validate_json(text)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"]))
            raise RestoreError(f"the checkpoint's {where or 'text'}: {wrong['msg']}") from error
        for name, expected in (
            ("format", FORMAT),
            ("partition_id", expected_partition_id),
            ("group_size", expected_group_size),
        ):
            if getattr(saved, name) != expected:
                raise RestoreError(
                    f"the checkpoint's {name} is {getattr(saved, name)!r}; expected {expected!r}"
                )
        return saved

    def without_rows(self) -> SavedRun:
        """Return the state for a run that has lost the rows: all prompts are unfinished."""
        lost = [group.prompt for group in self.groups]
        fates = {**self.fates, "restart": self.fates.get("restart", 0) + len(lost)}
        prompts = sorted([*lost, *self.unfinished], key=lambda prompt: prompt.sequence)
        return replace(self, groups=[], unfinished=prompts, fates=fates)


def next_attempts(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the prompts with the next attempt's group id, since the last one may have rows."""
    return [replace(prompt, attempt=prompt.attempt + 1) for prompt in prompts]


_ADAPTER = TypeAdapter(SavedRun)
