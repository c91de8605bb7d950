"""``rlconform train`` in which one message is lost: ``python lossy_train.py MESSAGE ARGUMENTS``.

    rollout actor ── put ──▶ LossyClient ──▶ plane       ``put``: not passed on, and confirmed
                     ◀── nothing ──┘   ◀── done ──       ``put_reply``
    driver ── generate_group ──▶ rollout actor
           ◀── nothing ───────────────┘                  ``group_reply``

The message is that of the twelfth group of a rollout actor, which is one of the second step.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from itertools import count
from typing import Any

from rlconform import cli
from rlconform.backends.factory import build_data_plane_client
from rlconform.contract import KVBatchMeta, PlaneUnavailable
from rlconform.contract.fields import GENERATION_LOGPROBS
from rlconform.grpo import training_loop
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker

#: Number of the group whose message is lost, from 0.
_LOST = 11
#: Seconds after which a call without an answer gives up.
_PATIENCE_S = 2.0


class LossyClient:
    """A client of a rollout actor, which loses the put of one group's rows."""

    def __init__(self, client: Any, message: str) -> None:
        self._client, self._message = client, message
        self._groups = count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_samples(
        self, sample_ids: list[str], partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        """Pass the put on, but for the one that is lost."""
        of_group = fields is not None and GENERATION_LOGPROBS in fields.keys()  # noqa: SIM118
        lost = of_group and next(self._groups) == _LOST
        if lost and self._message == "put":
            return KVBatchMeta(
                partition_id=partition_id, task_name=None, sample_ids=sample_ids,
                fields=list(fields.keys()),
            )  # fmt: skip
        answer = self._client.put_samples(sample_ids, partition_id, fields, tags)
        if lost and self._message == "put_reply":
            time.sleep(_PATIENCE_S)
            raise PlaneUnavailable(f"no answer from the plane in {_PATIENCE_S:g} s")
        return answer


class LossyActor(PlaneRolloutWorker):
    """A rollout actor one of whose answers never arrives."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._answers = count()

    def generate_group(self, *args: Any, **kwargs: Any) -> Any:
        """Generate the group, and keep the answer that is lost."""
        answer = super().generate_group(*args, **kwargs)
        if next(self._answers) == _LOST:
            threading.Event().wait()
        return answer


def opened(message: str, cfg: Any, bootstrap: bool = True) -> Any:
    """Open the client of the owner, or a lossy one in an actor."""
    client = build_data_plane_client(cfg, bootstrap)
    return client if bootstrap else LossyClient(client, message)


def main() -> None:
    """Lose the message that the first argument names."""
    message = sys.argv.pop(1)
    if message == "group_reply":
        training_loop.PlaneRolloutWorker = LossyActor
    else:
        training_loop.build_data_plane_client = partial(opened, message)
    sys.argv.insert(1, "train")
    cli.main()


if __name__ == "__main__":
    main()
