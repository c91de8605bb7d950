"""The planes that rlconform includes, each in its own package, and the factory that opens them."""

from rlconform.backends.config import DataPlaneConfig, load_data_plane, parse_data_plane
from rlconform.backends.factory import build_data_plane_client

#: Targets of the built-in planes by name, each as ``module:attribute``.
BUILTIN: dict[str, str] = {
    "memory": "rlconform.backends.memory:TARGET",
    "ray_store": "rlconform.backends.ray_store:TARGET",
    "transfer_queue/simple": "rlconform.backends.transfer_queue:SIMPLE",
    "transfer_queue/mooncake_cpu": "rlconform.backends.transfer_queue:MOONCAKE_CPU",
}

#: Planes of one process; reading this needs no import of torch, unlike their targets.
ONE_PROCESS = frozenset({"memory"})

__all__ = [
    "BUILTIN",
    "ONE_PROCESS",
    "DataPlaneConfig",
    "build_data_plane_client",
    "load_data_plane",
    "parse_data_plane",
]
