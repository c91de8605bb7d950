"""Torch on one thread, which is fastest for tiny models; process groups; rollout workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import UnknownSample
from rlconform.contract.fields import (
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    PER_TOKEN_FIELDS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.generation import OnFinished, Prefix, Prompts, Responses, Sampling, ShouldStop
from rlconform.grpo.generation.transformers_engine import TransformersEngine
from rlconform.grpo.models import load_model
from rlconform.grpo.rollout.groups import AbortedGroup, GroupRollout, PartialGroup
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import MESSAGE_LOGS, ROLLOUT_FIELDS, TOKEN_VERSIONS
from rlconform.grpo.tasks import Problem, build_task
from rlconform.plane import read_columns

PARTITION = "train"
ROLLOUT_COLUMNS = [*ROLLOUT_FIELDS, TOKEN_VERSIONS]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of one process, for all tests of a module."""
    store = dist.FileStore(str(tmp_path_factory.mktemp("world") / "store"), 1)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class SteppedEngine(TransformersEngine):
    """Calls ``before_token(n)`` in the thread of each generation, n = 0, 1, ... over its turns."""

    def __init__(self, conf: MasterConfig) -> None:
        policy = conf.policy
        model = load_model(policy.model_name, precision=policy.precision, seed=conf.grpo.seed)
        super().__init__(model, recompute_kv_cache=True)
        self.before_token: Callable[[int], object] = lambda _: None
        self.after_turn: Callable[[], object] = lambda: None
        self._calls = threading.local()

    def _generate(
        self,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        prefixes: Sequence[Prefix],
        should_stop: ShouldStop,
        on_finished: OnFinished,
    ) -> Responses:
        def stop() -> bool:
            number = getattr(self._calls, "number", 0)
            self._calls.number = number + 1
            self.before_token(number)
            return should_stop()

        responses = super()._generate(prompts, seeds, sampling, prefixes, stop, on_finished)
        self.after_turn()
        return responses

    def begin(self) -> None:
        """Count tokens from 0 again in this thread."""
        self._calls.number = 0


class GroupWorker:
    """A real worker with a ``SteppedEngine``, attached to a plane in this process."""

    def __init__(self, conf: MasterConfig, client: MemoryClient) -> None:
        self.conf, self.client = conf, client
        self.actor = PlaneRolloutWorker("cpu")
        self.actor.build(conf)
        self.engine = SteppedEngine(conf)
        self.actor._engine = self.engine
        self.actor.attach(lambda: client)

    def problem(self, number: int = 0) -> Problem:
        """Return a training problem."""
        return build_task(self.conf.data, self.conf.grpo.seed, "train").problem(number)

    def read(self, group: GroupRollout) -> TensorDict:
        """Read all columns of a group."""
        return read_columns(
            self.client,
            group.meta,
            ROLLOUT_COLUMNS,
            pad_value_dict={TOKEN_VERSIONS: -1},
            token_fields=PER_TOKEN_FIELDS | {TOKEN_VERSIONS},
        )

    def stored(self, ids: Sequence[str]) -> list[str]:
        """Return those of the ids that are in the plane."""
        found = []
        for sample_id in ids:
            try:
                self.client.get_samples([sample_id], PARTITION, [INPUT_IDS])
            except UnknownSample:
                continue
            found.append(sample_id)
        return found

    def close(self) -> None:
        """Release the engine and end the plane."""
        self.actor.close()
        self.client.close()

    def generate(
        self, group_id: str = "g", old: PartialGroup | None = None, number: int = 0
    ) -> GroupRollout | AbortedGroup:
        self.engine.begin()
        return self.actor.generate_group(self.problem(number), group_id, PARTITION, old)

    def whole(
        self, group_id: str = "g", old: PartialGroup | None = None, number: int = 0
    ) -> GroupRollout:
        result = self.generate(group_id, old, number)
        assert isinstance(result, GroupRollout)
        return result

    def aborted(self, group_id: str = "g", old: PartialGroup | None = None) -> PartialGroup:
        result = self.generate(group_id, old)
        assert isinstance(result, AbortedGroup)
        return result.partial

    def abort_before(self, number: int, ids: Sequence[str] | None = None) -> None:
        """Abort before token ``number`` of a generation, counted over its turns."""
        self.engine.before_token = lambda n: self.actor.abort(ids) if n == number else None

    def go_on(self) -> None:
        self.engine.before_token = lambda _: None


def open_group_worker(*overrides: str, kind: type[MemoryClient] = MemoryClient) -> GroupWorker:
    """Open a worker of groups of three rows, and a plane of its own with clients of this kind."""
    conf = load_config(
        "tiny_llama_copy",
        ["data.max_length=3", "grpo.num_generations_per_prompt=3", *overrides],
    )
    client = kind()
    client.register_partition(PARTITION, ROLLOUT_COLUMNS, 64, ["train"], 3)
    return GroupWorker(conf, client)


@pytest.fixture(scope="module")
def opened_workers() -> Iterator[list[GroupWorker]]:
    """The workers that ``open_worker`` has opened; closes them in the end."""
    workers: list[GroupWorker] = []
    yield workers
    for worker in workers:
        worker.close()


@pytest.fixture(scope="module")
def open_worker(opened_workers: list[GroupWorker]) -> Callable[..., GroupWorker]:
    """Opens workers with a plane each, see ``open_group_worker``."""

    def open_one(*overrides: str, **options: Any) -> GroupWorker:
        opened_workers.append(open_group_worker(*overrides, **options))
        return opened_workers[-1]

    return open_one


@pytest.fixture(autouse=True)
def close_workers_of_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close the workers that the test opened, whose threads must not outlive it."""
    if "open_worker" not in request.fixturenames:
        yield
        return
    workers: list[GroupWorker] = request.getfixturevalue("opened_workers")
    before = len(workers)
    yield
    while len(workers) > before:
        workers.pop().close()


def expect_same_rows(mine: TensorDict, its: TensorDict, *, bits: bool) -> None:
    """Expect equal rows; logprobs may differ by rounding unless ``bits``."""
    for name in (INPUT_IDS, INPUT_LENGTHS, TOKEN_MASK, SAMPLE_MASK):
        assert torch.equal(mine[name], its[name]), name
    close = {"atol": 0.0, "rtol": 0.0} if bits else {"atol": 2e-5, "rtol": 2e-5}
    torch.testing.assert_close(mine[GENERATION_LOGPROBS], its[GENERATION_LOGPROBS], **close)
    assert mine[MESSAGE_LOGS].tolist() == its[MESSAGE_LOGS].tolist()


@pytest.fixture(scope="session")
def same_rows() -> Callable[..., None]:
    """The function ``expect_same_rows``."""
    return expect_same_rows
