"""The contract: the client protocol, its meta, its errors, its field names, its requirements."""

from rlconform.contract.client import (
    CLIENT_METHODS,
    BatchMeta,
    DataPlaneClient,
    Tags,
    missing_methods,
)
from rlconform.contract.errors import (
    CapacityExceeded,
    ClientClosed,
    ConfigError,
    DataPlaneError,
    ForeignRow,
    PlaneUnavailable,
    UnknownField,
    UnknownPartition,
    UnknownSample,
    UnknownTask,
)
from rlconform.contract.fields import DP_TRAIN_FIELDS, LP_SEED_FIELDS, PER_TOKEN_FIELDS
from rlconform.contract.meta import KVBatchMeta
from rlconform.contract.requirements import CURRENT_SET, Requirement, load_requirements
from rlconform.contract.suggest import did_you_mean
from rlconform.contract.target import (
    CAPABILITIES,
    LEVELS,
    Isolation,
    Level,
    PlaneControl,
    Target,
    Timeouts,
)

__all__ = [
    "CAPABILITIES",
    "CLIENT_METHODS",
    "CURRENT_SET",
    "DP_TRAIN_FIELDS",
    "LEVELS",
    "LP_SEED_FIELDS",
    "PER_TOKEN_FIELDS",
    "BatchMeta",
    "CapacityExceeded",
    "ClientClosed",
    "ConfigError",
    "DataPlaneClient",
    "DataPlaneError",
    "ForeignRow",
    "Isolation",
    "KVBatchMeta",
    "Level",
    "PlaneControl",
    "PlaneUnavailable",
    "Requirement",
    "Tags",
    "Target",
    "Timeouts",
    "UnknownField",
    "UnknownPartition",
    "UnknownSample",
    "UnknownTask",
    "did_you_mean",
    "load_requirements",
    "missing_methods",
]
