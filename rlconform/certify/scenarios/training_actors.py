"""``TrainingActors``: the actors that make all training runs of level e2e, started once.

    start_training_actors ──▶ RunActors without a plane, for runs in memory
                          ──▶ RunActors with the plane under test

Runs are made one after the other. The reference GRPO needs transformers, so import this module only
where level e2e runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import ClusterConfig
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker

RANKS = 2

#: Groups that an asynchronous run may generate at the same time.
GROUPS_IN_FLIGHT = 4

#: A run of a few seconds that uses every feature of a step: several updates of several
#: micro-batches on each rank, a reference policy, importance weights, rows of several lengths.
SMALL = (
    f"cluster.dp_size={RANKS}",
    "grpo.num_prompts_per_step=4",
    "grpo.num_generations_per_prompt=4",
    "policy.train_global_batch_size=8",
    "policy.train_micro_batch_size=2",
    "policy.logprob_batch_size=3",
    "policy.make_sequence_length_divisible_by=4",
    "policy.packing.train_mb_tokens=24",
    "policy.packing.logprob_mb_tokens=40",
    "data.digits=3",
    "data.max_length=3",
    "generation.max_new_tokens=6",
    "loss_fn.reference_policy_kl_penalty=0.01",
    "loss_fn.use_importance_sampling_correction=true",
    "loss_fn.truncated_importance_sampling_type=tis",
    "loss_fn.truncated_importance_sampling_ratio=2.0",
)


@dataclass(frozen=True)
class TrainingActors:
    """Two groups of actors, and the plane that one of them uses."""

    plane: PlaneSession
    in_memory: RunActors
    through_plane: RunActors


@contextmanager
def start_training_actors(plane: PlaneSession) -> Iterator[TrainingActors]:
    """Start both groups of actors, and end them after the block."""
    plane.owner()  # starts Ray, where none runs
    with plane.starting.running():
        cluster = ClusterConfig(dp_size=RANKS)
        in_memory = RunActors(PolicyWorker, RolloutWorker, cluster)
        through_plane = RunActors(
            PlanePolicyWorker, PlaneRolloutWorker, cluster, groups_in_flight=GROUPS_IN_FLIGHT
        )
    try:
        yield TrainingActors(plane, in_memory, through_plane)
    finally:
        with plane.starting.running():
            through_plane.shutdown()
            in_memory.shutdown()
