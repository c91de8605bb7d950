"""A checkpoint of one plane loads into another one, with any engines.

It contains the rows of all processes. After a failed load, the plane can load another checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.backends.ray_runtime import ensure_ray
from rlconform.backends.ray_store import TARGET as RAY_STORE
from rlconform.backends.transfer_queue import SIMPLE

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("checkpoints")]

OPENS: dict[str, Callable[[], Any]] = {
    "memory": MemoryClient,
    "ray_store": lambda: RAY_STORE.open(RAY_STORE.config, True),
    "transfer_queue": lambda: SIMPLE.open(SIMPLE.config, True),
}
#: The plane that saves and the plane that loads: each plane does both once.
MOVES = [("memory", "transfer_queue"), ("transfer_queue", "ray_store"), ("ray_store", "memory")]
IDS = [f"u{prompt}_g{n}" for prompt in range(2) for n in range(2)]
LENGTHS = [3, 1, 4, 2]


@pytest.fixture(scope="module", autouse=True)
def ray_running() -> Iterator[None]:
    with ensure_ray():
        yield


def fill(client: Any) -> None:
    """A step of two groups with tags, jagged tokens, objects, and a row with tags only."""
    client.register_partition("step", ["tokens", "log"], 4, ["train", "prev_lp"], grpo_group_size=2)
    rows = [torch.full((length,), row) for row, length in enumerate(LENGTHS)]
    log = np.empty(len(IDS), dtype=object)
    log[:] = [{"text": sample_id} for sample_id in IDS]
    tokens = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    fields = TensorDict({"tokens": tokens, "log": log}, batch_size=[len(IDS)])
    client.put_samples(IDS, "step", fields=fields, tags=[{"input_lengths": n} for n in LENGTHS])
    client.put_samples(["u0_g9"], "step", tags=[{"reward": 1.5}])


@pytest.mark.parametrize(("source", "into"), MOVES)
def test_rows_groups_and_cursors_come_back(source: str, into: str, tmp_path: Path) -> None:
    with closing(OPENS[source]()) as first:
        fill(first)
        claimed = first.claim_meta("step", "train", ["tokens"], 2)
        first.save_checkpoint(tmp_path / "saved", metadata={"step": 7})
    with closing(OPENS[into]()) as second:
        assert second.load_checkpoint(tmp_path / "saved") == {"step": 7}
        assert second.list_sample_ids("step") == sorted([*IDS, "u0_g9"])
        batch = second.get_samples(IDS, "step", ["tokens", "log"])
        assert [row.tolist() for row in batch["tokens"].unbind()] == [
            [row] * length for row, length in enumerate(LENGTHS)
        ]
        assert [row["text"] for row in batch["log"]] == IDS
        rest = second.claim_meta("step", "train", ["tokens"], 4, blocking=False)
        assert sorted([*claimed.sample_ids, *rest.sample_ids]) == IDS
        assert rest.tags == [{"input_lengths": n} for n in LENGTHS[2:]]
        assert second.check_consumption_status("step", ["train"])
        assert not second.check_consumption_status("step", ["prev_lp"])
        more = TensorDict({"tokens": torch.ones(1, 2, dtype=torch.int64)}, batch_size=[1])
        second.put_samples(["u0_g8"], "step", fields=more)  # its group lacks the fields of u0_g9
        assert second.claim_meta("step", "train", ["tokens"], 2, blocking=False).sample_ids == []


@ray.remote(num_cpus=0)
def fill_from_another_process() -> None:
    with closing(RAY_STORE.open(RAY_STORE.config, False)) as attached:
        fill(attached)


def test_rows_of_another_process_are_saved_and_are_the_loaders_then(tmp_path: Path) -> None:
    with closing(OPENS["ray_store"]()) as owner:
        ray.get(fill_from_another_process.remote())
        owner.save_checkpoint(tmp_path / "saved")
        owner.clear_samples(None, "step")  # drops the rows that this process put: none
        assert len(owner.list_sample_ids("step")) == 5
    with closing(OPENS["ray_store"]()) as loader:
        assert loader.load_checkpoint(tmp_path / "saved") == {}
        batch = loader.get_samples(IDS[::-1], "step", ["tokens", "log"])
        assert [len(row) for row in batch["tokens"].unbind()] == LENGTHS[::-1]
        assert [row["text"] for row in batch["log"]] == IDS[::-1]
        loader.clear_samples(None, "step")
        assert loader.list_sample_ids("step") == []


@pytest.mark.parametrize("into", ["ray_store", "transfer_queue"])
def test_a_load_that_failed_may_be_tried_again(into: str, tmp_path: Path) -> None:
    with closing(OPENS["memory"]()) as first:
        fill(first)
        first.put_samples(IDS[:1], "step", fields=TensorDict({"late": torch.ones(1)}, [1]))
        first.save_checkpoint(tmp_path / "saved")
    lost, elsewhere = tmp_path / "saved" / "rows-1.npz", tmp_path / "rows-1.npz"
    lost.rename(elsewhere)
    with closing(OPENS[into]()) as second:
        with pytest.raises(FileNotFoundError):
            second.load_checkpoint(tmp_path / "saved")
        assert second.list_sample_ids("step") == []
        elsewhere.rename(lost)
        second.load_checkpoint(tmp_path / "saved")
        assert second.list_sample_ids("step") == sorted([*IDS, "u0_g9"])
        claimed = second.claim_meta("step", "train", ["tokens"], 4, blocking=False)
        assert claimed.sample_ids == IDS
