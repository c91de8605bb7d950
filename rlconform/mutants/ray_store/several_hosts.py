"""Planes that are right on one host; the self-test tries them with ``--ray-address``.

owner ── host and port ──▶ Ray's key-value store ──▶ attached client, on another host
  ◀── TCP, before the first read ──────────────────────┘
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from ray.experimental import internal_kv
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, Names

_TIMEOUT_S = 10.0


@ray_mutant("GET-10", evidence="Connection refused", several_hosts=True)
class AnnouncesLoopback(RayStoreClient):
    """Announces 127.0.0.1, the address at which only its own host reaches it (NR-26).

    Its readers connect to the owner there before they read.
    """

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._key = f"announced by {cfg['name']}"
        self._server = socket.create_server(("0.0.0.0", 0)) if bootstrap else None
        self._reached = bootstrap
        if self._server is not None:
            port = self._server.getsockname()[1]
            internal_kv._internal_kv_put(self._key, f"127.0.0.1 {port}")

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        if not self._reached:
            host, port = internal_kv._internal_kv_get(self._key).decode().split()
            socket.create_connection((host, int(port)), _TIMEOUT_S).close()
            self._reached = True
        return super().get_samples(sample_ids, partition_id, select_fields)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        super().close()
