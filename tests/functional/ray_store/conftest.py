"""One Ray for all tests here, and a new plane for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlconform.backends.ray_runtime import RayRuntime, ensure_ray
from rlconform.backends.ray_store.client import RayStoreClient

from .processes import CONFIG


@pytest.fixture(scope="package")
def ray_runtime() -> Iterator[RayRuntime]:
    with ensure_ray() as session:
        yield session


@pytest.fixture
def owner(ray_runtime: RayRuntime) -> Iterator[RayStoreClient]:
    assert ray_runtime is not None
    client = RayStoreClient(CONFIG)
    client.register_partition("p", ["x"], 64, ["t"])
    yield client
    client.close()
