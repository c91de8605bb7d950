"""The table of scenarios: which process, at which moment, what happens to it, how the run ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .faults import Fault, Kill, Lose, Slow, Stop
from .verdict import Ending, Ends, GoesOn
from .victims import Role

#: Planes by name, and the blocks that configure them.
PLANES = {"ray_store": "ray_store", "transfer_queue/simple": "transfer_queue_simple"}


@dataclass(frozen=True)
class Scenario:
    """One run with one fault.

    ``when`` is the moment, after ``after_steps`` steps: the victim is at work, or not, or both.
    """

    name: str
    victim: Role
    fault: Fault
    ending: Ending
    when: Literal["busy", "idle", "any"] = "busy"
    after_steps: int = 1
    rank: int = 0  # of the victim
    steps: int = 10  # of the whole run
    overrides: tuple[str, ...] = ()
    servers: int = 0  # that generate over HTTP
    deadline_s: float = 60.0  # from the fault to the end of the run
    resumed: bool = False  # whether the same command is started again afterwards
    smoke: bool = False


def _ends(*errors: str, rules: tuple[str, ...] = ()) -> Ends:
    return Ends(frozenset(errors), frozenset(rules))


_TWO_ACTORS = ("cluster.rollout_workers=2",)
_QUEUE = ("async_rl.transport=queue",)
_REWARD_WORKER = ("reward_model.enable=true", "reward_model.enable_resource_pool=true")
_TWO_REWARD_WORKERS = (
    *_REWARD_WORKER, "reward_model.n_gpus_per_node=2", "reward_model.dp_size=2",
)  # fmt: skip
#: What a run ends with whose plane is lost: the driver's own call, or the last attempt of a prompt.
_PLANE_LOST = ("PlaneUnavailable", "TooManySkippedPrompts")
#: Enough steps that the run does not end before the fault shows.
_LONG = 400

SCENARIOS = (
    Scenario(
        "generation_server_killed_idle",
        Role.GENERATION_SERVER, Kill(), GoesOn(), when="idle", servers=2, steps=6,
    ),
    Scenario(
        "generation_server_killed_serving",
        Role.GENERATION_SERVER, Kill(), GoesOn(), servers=2, steps=6,
    ),
    Scenario(
        "only_generation_server_killed",
        Role.GENERATION_SERVER, Kill(), _ends("TooManySkippedPrompts", "ServersLost"),
        servers=1, steps=_LONG,
    ),
    Scenario(
        "rollout_actor_killed_idle",
        Role.ROLLOUT_ACTOR, Kill(), GoesOn(), when="idle", rank=1, overrides=_TWO_ACTORS,
    ),
    Scenario(
        "rollout_actor_killed_serving",
        Role.ROLLOUT_ACTOR, Kill(), GoesOn(), rank=1, overrides=_TWO_ACTORS, smoke=True,
    ),
    Scenario(
        "only_rollout_actor_killed",
        Role.ROLLOUT_ACTOR, Kill(), _ends("WorkerDied"), steps=_LONG,
    ),
    Scenario(
        "rollout_actor_stopped",
        Role.ROLLOUT_ACTOR, Stop(12.0), GoesOn(), rank=1,
        overrides=(*_TWO_ACTORS, "async_rl.rollout_failure.generation_timeout_s=6"),
    ),
    Scenario(
        "rollout_actor_ten_times_slower",
        Role.ROLLOUT_ACTOR, Slow(10), GoesOn(), when="any", steps=6,
    ),
    Scenario(
        "reward_worker_killed",
        Role.REWARD_WORKER, Kill(), GoesOn(), overrides=_TWO_REWARD_WORKERS,
    ),
    Scenario(
        "only_reward_worker_killed",
        Role.REWARD_WORKER, Kill(), _ends("WorkerLost"), overrides=_REWARD_WORKER, steps=_LONG,
    ),
    Scenario(
        "train_worker_killed",
        Role.TRAIN_WORKER, Kill(), _ends("WorkerDied"), steps=_LONG, smoke=True,
    ),
    Scenario(
        "train_worker_stopped",
        Role.TRAIN_WORKER, Stop(), _ends("WorkerLost"), steps=_LONG,
        overrides=("cluster.timeout_s=25",),
    ),
    Scenario(
        "train_worker_ten_times_slower",
        Role.TRAIN_WORKER, Slow(10), GoesOn(), when="any",
    ),
    Scenario(
        "queue_killed",
        Role.QUEUE, Kill(), _ends("QueueLost"), overrides=_QUEUE, steps=_LONG,
    ),
    Scenario(
        "queue_stopped",
        Role.QUEUE, Stop(), _ends("StallError"), steps=_LONG,
        overrides=(
            *_QUEUE,
            "async_rl.stall_watchdog.interval=1", "async_rl.stall_watchdog.stall_timeout=10",
        ),
    ),
    Scenario(
        "plane_controller_killed",
        Role.PLANE_CONTROLLER, Kill(), _ends(*_PLANE_LOST), steps=_LONG,
    ),
    Scenario(
        "plane_controller_stopped",
        Role.PLANE_CONTROLLER, Stop(), _ends(*_PLANE_LOST), steps=_LONG,
        overrides=("data_plane.ack_timeout_ms=10000",),
    ),
    Scenario(
        "plane_controller_ten_times_slower",
        Role.PLANE_CONTROLLER, Slow(10), GoesOn(), when="any",
    ),
    Scenario(
        "plane_storage_killed",
        Role.PLANE_STORAGE, Kill(), _ends(*_PLANE_LOST, "WorkerDied"), steps=_LONG,
    ),
    Scenario(
        "put_lost",
        Role.ROLLOUT_ACTOR, Lose("put"),
        _ends("UnknownSample", "UnknownField", rules=("plane_ops",)),
    ),
    Scenario("reply_of_a_put_lost", Role.ROLLOUT_ACTOR, Lose("put_reply"), GoesOn()),
    Scenario(
        "reply_of_a_rollout_lost",
        Role.ROLLOUT_ACTOR, Lose("group_reply"), GoesOn(),
        overrides=("async_rl.rollout_failure.generation_timeout_s=6",),
    ),
    Scenario(
        "driver_killed_in_mid_step",
        Role.DRIVER, Kill(), GoesOn(), after_steps=3, steps=6, resumed=True,
        overrides=("checkpointing.enabled=true", "checkpointing.save_period=2"),
    ),
)  # fmt: skip
