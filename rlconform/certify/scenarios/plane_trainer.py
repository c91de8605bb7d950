"""``plane_trainer``: opens a trainer on the plane under test; its errors are violations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.row_digests import DigestClient, open_digesting
from rlconform.certify.target import open_target
from rlconform.contract import DataPlaneClient
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.trainers.base import Trainer

T = TypeVar("T", bound=Trainer)


@contextmanager
def plane_trainer(
    plane: PlaneSession,
    trainer_class: Callable[[MasterConfig, RunActors, DataPlaneClient, Attach], T],
    config: MasterConfig,
    actors: RunActors,
    expected: str,
    *,
    digests: bool = False,
) -> Iterator[T]:
    """Open a trainer for the ``with`` block; raise its errors as violations of ``expected``.

    With ``digests`` each reader verifies that rows are as their rollout wrote them.
    """
    used = plane.config or plane.target.config
    attach: Attach = partial(open_target, plane.spec, used, bootstrap=False)
    try:
        client = plane.owner()
        if digests:
            client, attach = DigestClient(client), partial(open_digesting, attach)
        trainer = trainer_class(config, actors, client, attach)
        try:
            yield trainer
        finally:
            trainer.shutdown()
    except ContractViolation:
        raise
    except Exception as error:  # only the plane can be the cause
        got = shorten(f"{type(error).__name__}: {error}")
        raise ContractViolation(expected, got) from error
