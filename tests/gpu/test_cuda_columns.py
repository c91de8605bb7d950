"""CUDA tensors through planes: the bytes are right although the kernel that makes them still runs.

A plane that copies from the device without waiting for its stream stores old bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.target import open_target
from rlconform.contract import DataPlaneClient
from rlconform.wire import pack_per_token_field

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

IDS = [f"row-{index}" for index in range(16)]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)


@pytest.fixture(scope="module", params=["memory", "ray_store", "transfer_queue/simple"])
def client(request: pytest.FixtureRequest, gpu_ray: int) -> Iterator[DataPlaneClient]:
    assert gpu_ray > 0
    plane = open_target(request.param)
    plane.register_partition("step", ["dense", "jagged"], len(IDS), ["train"])
    yield plane
    plane.clear_samples(None, "step")
    plane.close()


def late(values: torch.Tensor) -> torch.Tensor:
    """Return a copy on the GPU that is computed only after some milliseconds of other work."""
    busy = torch.ones(4096, 4096, device="cuda")
    for _ in range(4):
        busy = busy @ busy / 4096
    on_device: torch.Tensor = torch.where(busy[0, 0] > 0, values.to("cuda", non_blocking=True), 0)
    return on_device


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_columns_put_right_after_their_kernels(client: DataPlaneClient, dtype: torch.dtype) -> None:
    lengths = torch.arange(1, len(IDS) + 1)
    values = torch.randint(0, 2, (len(IDS), 32)).to(dtype)
    dense, padded = late(values), late(values)
    assert dense.is_cuda
    jagged = pack_per_token_field(padded, lengths.cuda())
    columns = TensorDict({"dense": dense, "jagged": jagged}, batch_size=[len(IDS)])
    client.put_samples(IDS, "step", columns)
    got = client.get_samples(IDS, "step", ["dense", "jagged"])
    assert torch.equal(got["dense"].cpu(), values)
    for row, length, want in zip(got["jagged"].unbind(), lengths, values, strict=True):
        assert torch.equal(row.cpu(), want[:length])
