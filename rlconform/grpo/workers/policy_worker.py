"""``PolicyWorker``: one data-parallel rank as a Ray actor, whose driver hands it its rows.

    driver ── join ──▶ worker ◀── gloo, nccl ──▶ the other ranks
           ── build(config) ──▶ a policy, as often as the driver likes
           ── logprobs, train: every rank at the same time, each with its own rows ──▶ results

Whoever waits for another rank in a collective waits ``timeout_s`` at most; a rank that dies makes
the driver's call fail at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
from tensordict import TensorDict
from torch import Tensor

from rlconform.grpo.config import MasterConfig
from rlconform.grpo.workers.checkpoint import load_policy, save_policy
from rlconform.grpo.workers.data_parallel import whole_weights
from rlconform.grpo.workers.determinism import make_deterministic
from rlconform.grpo.workers.policy_model import Metrics, PolicyModel

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


class PolicyWorker:
    """One rank.

    Args:
        rank: Its number among the ranks.
        world: How many there are.
        device: ``cpu``, or ``cuda`` for the first GPU that the process may see.
    """

    def __init__(self, rank: int, world: int, device: str) -> None:
        self.rank = rank
        self._world = world
        self._device = torch.device(device)
        self._store: Any = None  # dist.TCPStore, which torch's stubs don't export
        self._policy: PolicyModel | None = None

    def meeting_point(self, timeout_s: float) -> tuple[str, int]:
        """Rank 0 opens the store at which all ranks meet; its host and port.

        Args:
            timeout_s: Seconds that a rank waits for another in the store.
        """
        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        timeout = timedelta(seconds=timeout_s)
        self._store = dist.TCPStore(  # type: ignore[attr-defined]
            host, 0, self._world, True, timeout, wait_for_workers=False
        )
        return host, self._store.port

    def join(self, host: str, port: int, timeout_s: float) -> None:
        """Form the ranks' process group.

        Args:
            host: Of rank 0.
            port: From its ``meeting_point``.
            timeout_s: Seconds after which a collective that a rank doesn't come to fails.
        """
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
        """Make the run's policy, in place of any before it."""
        make_deterministic(config.grpo.seed)
        self._policy = PolicyModel(config, self._device)

    @property
    def policy(self) -> PolicyModel:
        """The policy. ``RuntimeError`` before ``build``."""
        if self._policy is None:
            raise RuntimeError("build the policy first")
        return self._policy

    def logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """(N, S) logprobs of this rank's rows, see ``Policy.logprobs``."""
        return self.policy.logprobs(rows, packing)

    def reference_logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """(N, S) logprobs under the reference policy, see ``Policy.reference_logprobs``."""
        return self.policy.reference_logprobs(rows, packing)

    def train(self, rows: TensorDict, packing: Mapping[str, Any], n_batches: int) -> list[Metrics]:
        """An update of the weights for each global batch, see ``Policy.train``."""
        return self.policy.train(rows, packing, n_batches)

    def weights(self) -> dict[str, Tensor]:
        """All weights by name on rank 0, nothing on the others; every rank is asked."""
        return whole_weights(self.policy.model)

    def save(self, folder: Path) -> None:
        """Write this rank's part of a checkpoint; every rank is asked."""
        save_policy(self.policy, folder, self.rank)

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint; every rank is asked."""
        load_policy(self.policy, folder, self.rank)

    def leave(self) -> None:
        """Leave the process group. Idempotent."""
        self._policy = None
        if dist.is_initialized():
            dist.destroy_process_group()
        self._store = None
