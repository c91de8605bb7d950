"""The contract: client protocol, batch metas, errors, field names, requirements and targets."""

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
    did_you_mean,
)
from rlconform.contract.meta import KVBatchMeta
from rlconform.contract.requirements import CURRENT_SET, Requirement, load_requirements
from rlconform.contract.target import (
    CAPABILITIES,
    LEVELS,
    Level,
    PlaneControl,
    SmallPlane,
    Target,
    Timeouts,
    includes,
)

__all__ = [
    "CAPABILITIES",
    "CLIENT_METHODS",
    "CURRENT_SET",
    "LEVELS",
    "BatchMeta",
    "CapacityExceeded",
    "ClientClosed",
    "ConfigError",
    "DataPlaneClient",
    "DataPlaneError",
    "ForeignRow",
    "KVBatchMeta",
    "Level",
    "PlaneControl",
    "PlaneUnavailable",
    "Requirement",
    "SmallPlane",
    "Tags",
    "Target",
    "Timeouts",
    "UnknownField",
    "UnknownPartition",
    "UnknownSample",
    "UnknownTask",
    "did_you_mean",
    "includes",
    "load_requirements",
    "missing_methods",
]
