"""Races between threads of one process: ``memory`` with a client that can't be shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tensordict import TensorDict

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.contract import DataPlaneClient, KVBatchMeta, Tags
from rlconform.mutants import Mutant
from rlconform.mutants.races_clients import through_one_buffer


class SharesABuffer(MemoryClient):
    """Passes every dense column through one buffer of the client's, without a lock (TQ-20)."""

    def __init__(self, cfg: Mapping[str, Any] | None = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._buffer = bytearray()

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put what the buffer holds after the columns went into it."""
        if isinstance(fields, TensorDict):
            fields = through_one_buffer(self._buffer, fields)
        return super().put_samples(sample_ids, partition_id, fields, tags)


class KeepsTheCallAtHand(MemoryClient):
    """Keeps the ids of the read under way in an attribute, where another thread's read puts its."""

    _ids: list[str]

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the rows of the call at hand."""
        self._ids = sample_ids
        time.sleep(0)  # as a client does that waits for a socket: other threads run
        return super().get_samples(self._ids, partition_id, select_fields)


def _mutant(
    name: str,
    opener: Callable[[Mapping[str, Any], bool], DataPlaneClient],
    story: str,
    evidence: str,
) -> Mutant:
    return Mutant(
        name=f"mutant/{name}",
        vendor="rlconform",
        open=opener,
        level=RIGHT.level,
        capabilities=RIGHT.capabilities,
        timeouts=RIGHT.timeouts,
        wraps=RIGHT.name,
        fails=("LIFE-05",),
        evidence=evidence,
        chance=True,
        story=story,
    )


SHARES_A_BUFFER = _mutant(
    "shares_a_buffer",
    SharesABuffer,
    "One encoder's buffers served all threads: sizes came out that no dtype divides (TQ-20).",
    "= row:p-",
)

KEEPS_THE_CALL_AT_HAND = _mutant(
    "keeps_the_call_at_hand",
    KeepsTheCallAtHand,
    "Requests and answers of two threads met on one connection (TQ-09).",
    "= row:p-",
)
