"""``PolicyWorker``: one rank of the policy as a Ray actor.

    driver ── join ───────────▶ worker ◀── gloo or nccl ──▶ the other ranks
           ── build(config) ──▶ a new policy for the next run
           ── logprobs, train: on every rank at the same time, with its own rows ──▶ results

A rank waits for the others in collectives, at most ``timeout_s``. If a rank dies, the driver's call
fails at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.events.schema import WeightsPublished
from rlconform.grpo.config import ClippedPGLossConfig, MasterConfig
from rlconform.grpo.events_actor import EventsActor
from rlconform.grpo.models import weights_digest
from rlconform.grpo.workers.determinism import make_deterministic
from rlconform.grpo.workers.policy import Metrics, RankPolicy
from rlconform.grpo.workers.policy_model import PolicyModel
from rlconform.grpo.workers.rank_layout import RankLayout

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


class PolicyWorker(EventsActor):
    """One of ``world`` ranks, on ``cpu`` or the first visible GPU; it gets rows as arguments."""

    event_role = "policy"

    def __init__(self, rank: int, world: int, device: str) -> None:
        self.rank = rank
        self._world = world
        self._device = torch.device(device)
        self._store: Any = None  # dist.TCPStore, which torch's stubs don't export
        self._policy: RankPolicy | None = None

    def open_store(self, timeout_s: float) -> tuple[str, int]:
        """Open the ``TCPStore`` of the process group on rank 0; return the host and the port."""
        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        timeout = timedelta(seconds=timeout_s)
        self._store = dist.TCPStore(  # type: ignore[attr-defined]
            host, 0, self._world, True, timeout, wait_for_workers=False
        )
        return host, self._store.port

    def join(self, host: str, port: int, timeout_s: float) -> None:
        """Join the process group through rank 0's store; collectives fail after ``timeout_s``."""
        timeout = timedelta(seconds=timeout_s)
        if self._store is None:
            self._store = dist.TCPStore(  # type: ignore[attr-defined]
                host, port, self._world, False, timeout
            )
        dist.init_process_group(
            _BACKENDS[self._device.type],
            store=self._store,
            rank=self.rank,
            world_size=self._world,
            timeout=timeout,
        )

    def build(self, config: MasterConfig) -> None:
        """Create the run's policy, which replaces the policy of a previous run."""
        layout = RankLayout.of(config.policy, self._world)
        make_deterministic(config.grpo.seed)
        self._policy = None  # frees what it holds before the next one is created
        if not config.policy.megatron_cfg.enabled:
            self._policy = PolicyModel(config, self._device)
            return
        if find_spec("megatron") is None:
            raise ConfigError(
                'policy.megatron_cfg.enabled needs megatron-core: pip install "rlconform[megatron]"'
            )
        from rlconform.grpo.workers.megatron.policy import (  # noqa: PLC0415 - an extra
            MegatronPolicy,
        )

        self._policy = MegatronPolicy(config, self._device, layout)

    @property
    def policy(self) -> RankPolicy:
        """The rank's policy; ``RuntimeError`` before ``build``."""
        if self._policy is None:
            raise RuntimeError("call build first")
        return self._policy

    def logprobs(
        self,
        rows: TensorDict,
        packing: Mapping[str, Any],
        sample_ids: Sequence[str] | None = None,
    ) -> Tensor:
        """Compute logprobs, see ``RankPolicy.logprobs``."""
        return self.policy.logprobs(rows, packing, sample_ids)

    def reference_logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """Compute reference logprobs, see ``RankPolicy.reference_logprobs``."""
        return self.policy.reference_logprobs(rows, packing)

    def train(
        self,
        rows: TensorDict,
        packing: Mapping[str, Any],
        n_batches: int,
        loss_fn: ClippedPGLossConfig | None = None,
        mbs: int | None = None,
        sample_ids: Sequence[str] | None = None,
    ) -> list[Metrics]:
        """Update the weights, see ``RankPolicy.train``."""
        return self.policy.train(rows, packing, n_batches, loss_fn, mbs, sample_ids)

    def begin_train_step(
        self, loss_fn: ClippedPGLossConfig | None = None, mbs: int | None = None
    ) -> None:
        """Open an update in chunks, see ``RankPolicy.begin_train_step``."""
        self.policy.begin_train_step(loss_fn, mbs)

    def finish_train_step(self) -> Metrics:
        """Update the weights and end the step, see ``RankPolicy.finish_train_step``."""
        return self.policy.finish_train_step()

    def abort_train_step(self) -> None:
        """Drop the open step, see ``RankPolicy.abort_train_step``."""
        self.policy.abort_train_step()

    def witnessed(self) -> Counter[str]:
        """Return this rank's ``RankPolicy.witnessed``."""
        return self.policy.witnessed

    def weights(self) -> dict[str, Tensor]:
        """Return all weights by name on rank 0, {} on other ranks; every rank must call this."""
        return self.policy.weights()

    @ray.method(num_returns=3)
    def published_weights(
        self, version: int | None = None, stamp: int = 0
    ) -> tuple[dict[str, Tensor], str, int]:
        """Return ``weights``, their digest, and the event log's clock when they are published.

        They are three objects, so that the digest is read alone.
        """
        weights = self.weights()
        digest = weights_digest(weights)
        if self.event_writer is None or version is None:
            return weights, digest, stamp
        self.event_writer.observe(stamp)
        if self.rank == 0:
            self.event_writer.write(WeightsPublished(version=version, digest=digest))
        return weights, digest, self.event_writer.stamp()

    def save(self, folder: Path) -> None:
        """Write this rank's part of a checkpoint; every rank must call this."""
        self.policy.save(folder, self.rank)

    def load(self, folder: Path) -> None:
        """Load a checkpoint; every rank must call this."""
        self.policy.load(folder, self.rank)
