"""The configuration of a GRPO run: one tree, checked, its names NeMo-RL's where it has them.

config = load_config("tiny_llama_copy", ["grpo.max_num_steps=3", "policy.packing.mode=none"])

policy         the model, its optimizer, how batches are cut into micro-batches
grpo           the loop: group sizes, baseline, dynamic sampling, validation, seed
loss_fn        clipping, KL, importance sampling, normalisation
data           the task and its problems
generation     the engine that writes the responses
data_plane     the plane that batches travel through, or ``enabled: false``
cluster        the workers
checkpointing  checkpoints
logger         metrics
"""

from rlconform.grpo.config.algorithm import (
    ClippedPGLossConfig,
    GRPOConfig,
    RewardScalingConfig,
    RewardShapingConfig,
)
from rlconform.grpo.config.infrastructure import (
    CheckpointingConfig,
    ClusterConfig,
    DataConfig,
    GenerationConfig,
    LoggerConfig,
)
from rlconform.grpo.config.load import load_config, parse_config, reference_config_names
from rlconform.grpo.config.master import MasterConfig
from rlconform.grpo.config.policy import (
    OptimizerConfig,
    PackingConfig,
    PackingMode,
    PolicyConfig,
    Precision,
    SchedulerConfig,
    Stage,
)

__all__ = [
    "CheckpointingConfig",
    "ClippedPGLossConfig",
    "ClusterConfig",
    "DataConfig",
    "GRPOConfig",
    "GenerationConfig",
    "LoggerConfig",
    "MasterConfig",
    "OptimizerConfig",
    "PackingConfig",
    "PackingMode",
    "PolicyConfig",
    "Precision",
    "RewardScalingConfig",
    "RewardShapingConfig",
    "SchedulerConfig",
    "Stage",
    "load_config",
    "parse_config",
    "reference_config_names",
]
