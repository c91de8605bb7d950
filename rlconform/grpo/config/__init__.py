"""The configuration of a GRPO run, one validated tree; keys that NeMo-RL also has keep their names.

config = load_config("tiny_llama_copy", ["grpo.max_num_steps=3", "policy.packing.mode=none"])

policy         model, optimizer, micro-batches
grpo           group sizes, advantages, dynamic sampling, validation, seed
loss_fn        ratios, clipping, KL, importance sampling, normalisation
data           the task and its problems
generation     the generation engine
data_plane     the plane that carries the rows, or ``enabled: false``
async_rl       asynchronous training: sampler, capacities, failures; left out for synchronous
reward_model   a reward model: workers, resource pool, batches; or a service
custom_reward_function, reward_loop   a reward function of your own; deadlines of rewards
cluster        number of ranks and their device
checkpointing  checkpoints
logger         metrics
"""

from rlconform.grpo.config.algorithm import (
    AdvEstimatorConfig,
    GRPOConfig,
    RewardScalingConfig,
    RewardShapingConfig,
)
from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.config.infrastructure import (
    CheckpointingConfig,
    ClusterConfig,
    DataConfig,
    GenerationConfig,
    LoggerConfig,
)
from rlconform.grpo.config.load import load_config, parse_config, reference_config_names
from rlconform.grpo.config.loss import ClippedPGLossConfig
from rlconform.grpo.config.master import MasterConfig
from rlconform.grpo.config.policy import (
    OptimizerConfig,
    PackingConfig,
    PolicyConfig,
    SchedulerConfig,
    Stage,
)
from rlconform.grpo.config.rewards import (
    CustomRewardFunctionConfig,
    RewardLoopConfig,
    RewardModelConfig,
    RewardServiceConfig,
)

__all__ = [
    "AdvEstimatorConfig",
    "AsyncRLConfig",
    "CheckpointingConfig",
    "ClippedPGLossConfig",
    "ClusterConfig",
    "CustomRewardFunctionConfig",
    "DataConfig",
    "GRPOConfig",
    "GenerationConfig",
    "LoggerConfig",
    "MasterConfig",
    "OptimizerConfig",
    "PackingConfig",
    "PolicyConfig",
    "RewardLoopConfig",
    "RewardModelConfig",
    "RewardScalingConfig",
    "RewardServiceConfig",
    "RewardShapingConfig",
    "SchedulerConfig",
    "Stage",
    "load_config",
    "parse_config",
    "reference_config_names",
]
