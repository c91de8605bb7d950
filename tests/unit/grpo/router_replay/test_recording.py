"""What engines and rollout workers record: turns, cut responses, prefills, refits, dtypes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.contract import ConfigError
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS, ROUTED_EXPERTS, TOKEN_MASK
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.generation import Prefix, Prompts, Sampling
from rlconform.grpo.generation.transformers_engine import TransformersEngine
from rlconform.grpo.models import load_model, token_logprobs
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.router_replay.canaries import canary_routes
from rlconform.grpo.router_replay.column import routes_column
from rlconform.grpo.router_replay.recorder import RouteRecorder
from rlconform.grpo.router_replay.replayer import RouteReplayer
from rlconform.grpo.router_replay.route_format import RouteFormat, RouterReplayError
from rlconform.grpo.tasks import build_task
from rlconform.plane import read_columns

TINY = RouteFormat(layers=2, top_k=2, experts=8)
PROMPTS = Prompts.of([torch.tensor([5, 6, 7]), torch.tensor([8]), torch.tensor([9, 5])], 0)
SEEDS = [1, 2, 3]
SAMPLING = Sampling(max_new_tokens=6, stop_token_ids=())


def engine(**options: bool) -> TransformersEngine:
    return TransformersEngine(load_model("tiny-qwen3-moe"), record_routes=True, **options)


def routes_of_a_pass(tokens: Tensor) -> Tensor:
    """The experts of one row in a forward pass over all of its tokens."""
    model = load_model("tiny-qwen3-moe")
    recorder = RouteRecorder(model)
    length = torch.tensor([len(tokens)])
    _, routes = recorder.record(lambda: token_logprobs(model, tokens[None], length))
    return routes


def test_an_engine_records_all_tokens_but_the_last() -> None:
    made = engine().generate(PROMPTS, SEEDS, SAMPLING)
    for row, length in enumerate(PROMPTS.lengths.tolist()):
        tokens = torch.cat([PROMPTS.input_ids[row, :length], made.token_ids[row]])
        routes = made.prefix(row).routes
        assert routes is not None
        assert routes.dtype is torch.uint8
        assert torch.equal(routes, routes_of_a_pass(tokens)[:-1])


@pytest.mark.parametrize("cut_after", [1, 3])
def test_a_response_that_goes_on_keeps_its_first_routes(cut_after: int) -> None:
    whole = engine().generate(PROMPTS, SEEDS, SAMPLING)
    tokens = iter(range(100))
    cut = engine().generate(PROMPTS, SEEDS, SAMPLING, should_stop=lambda: next(tokens) == cut_after)
    marked = []
    for row in range(len(PROMPTS)):
        prefix = cut.prefix(row)
        assert prefix.routes is not None
        assert len(prefix.routes) == int(PROMPTS.lengths[row]) + len(prefix) - 1
        canaries = canary_routes(len(prefix.routes), TINY, 20 * row)
        marked.append(Prefix(prefix.token_ids, prefix.logprobs, prefix.versions, canaries))
    rest = engine().generate(PROMPTS, SEEDS, SAMPLING, prefixes=marked)
    for row, prefix in enumerate(marked):
        got, expected = rest.prefix(row).routes, whole.prefix(row).routes
        assert got is not None
        assert expected is not None
        assert prefix.routes is not None
        known = len(prefix.routes)
        assert torch.equal(got[:known], prefix.routes)  # not those of the second prefill
        assert torch.equal(got[known:], expected[known:])


def test_a_recomputed_cache_changes_no_routes_that_are_known() -> None:
    made = engine(recompute_kv_cache=True)
    other = load_model("tiny-qwen3-moe", seed=1).state_dict()
    tokens = iter(range(100))

    def refit_after_two() -> bool:
        if next(tokens) == 2:
            made.refit(other, 1)
        return False

    changed = made.generate(PROMPTS, SEEDS, SAMPLING, should_stop=refit_after_two)
    before = engine().generate(PROMPTS, SEEDS, SAMPLING)
    for row, length in enumerate(PROMPTS.lengths.tolist()):
        got, old = changed.prefix(row).routes, before.prefix(row).routes
        assert got is not None
        assert old is not None
        assert len(got) == length + len(changed.token_ids[row]) - 1
        assert torch.equal(got[: length + 1], old[: length + 1])


def test_a_model_without_routers_is_refused() -> None:
    with pytest.raises(ConfigError, match="Qwen3-MoE"):
        TransformersEngine(load_model("tiny-llama"), record_routes=True)


def test_engines_that_record_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="the experts that vllm chooses are not recorded"):
        load_config(
            "tiny_moe_copy", ["policy.router_replay.enabled=true", "generation.backend=vllm"]
        )


# -- columns ---------------------------------------------------------------------------------


def test_a_row_of_two_turns_has_all_routes_but_the_last() -> None:
    first, second = canary_routes(5, TINY), canary_routes(9, TINY, 50)
    column = routes_column([[first, second]], [10], 12, TINY)
    assert torch.equal(column[0, :5], first)
    assert torch.equal(column[0, 5:9], second[5:])
    assert bool(TINY.is_missing(column[0, 9:]).all())


def test_rows_whose_routes_are_not_known_are_refused() -> None:
    with pytest.raises(RouterReplayError, match="weren't recorded"):
        routes_column([[None]], [4], 4, TINY)
    with pytest.raises(RouterReplayError, match="first 3 tokens of row 0; got 2"):
        routes_column([[canary_routes(2, TINY)]], [4], 4, TINY)
    with pytest.raises(RouterReplayError, match="first 3 tokens of row 0; got 0"):
        routes_column([[]], [4], 4, TINY)


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    opened = MemoryClient({})
    yield opened
    opened.close()


def several_turns() -> MasterConfig:
    return load_config(
        "tiny_moe_copy",
        [
            "data.task=guess",
            "grpo.max_rollout_turns=3",
            "grpo.num_generations_per_prompt=8",
            "generation.max_new_tokens=8",
            "policy.max_total_sequence_length=40",
            "policy.router_replay.enabled=true",
        ],
    )


def test_a_worker_puts_the_routes_of_prompts_observations_and_responses(
    client: MemoryClient,
) -> None:
    conf = several_turns()
    worker = PlaneRolloutWorker("cpu")
    worker.build(conf)
    worker.attach(lambda: client)
    task = build_task(conf.data, conf.grpo.seed, "train")
    client.register_partition("train", [ROUTED_EXPERTS], 64, ["train"])
    meta, summaries = worker.collect_to_plane([task.problem(n) for n in range(3)], "train", "train")
    worker.close()
    columns = [INPUT_IDS, INPUT_LENGTHS, TOKEN_MASK, ROUTED_EXPERTS]
    batch = read_columns(client, meta, columns, pad_value_dict={ROUTED_EXPERTS: TINY.missing})
    TINY.check_rows(batch[ROUTED_EXPERTS], batch[INPUT_LENGTHS])
    assert max(len(row.spans) for row in summaries) > 1  # with observations between the turns
    for row, length in enumerate(batch[INPUT_LENGTHS].tolist()):
        expected = routes_of_a_pass(batch[INPUT_IDS][row, :length])[:-1]
        assert torch.equal(batch[ROUTED_EXPERTS][row, : length - 1], expected)
        assert bool(TINY.is_missing(batch[ROUTED_EXPERTS][row, length - 1 :]).all())


# -- numbers ---------------------------------------------------------------------------------


@torch.no_grad()
def test_logprobs_of_bfloat16_agree_with_replay_and_miss_the_tolerance_without() -> None:
    """The tolerance is that of ``benchmarks/router_replay.py``."""
    rows, width, tolerance = 64, 32, 0.1
    rounded = load_model("tiny-qwen3-moe", precision="bfloat16")
    weights = {name: leaf.float() for name, leaf in rounded.state_dict().items()}
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 16, (rows, 4), generator=draws)
    made = TransformersEngine(rounded, record_routes=True).generate(
        Prompts(ids, torch.full((rows,), 4)),
        list(range(rows)),
        Sampling(max_new_tokens=width, stop_token_ids=()),
    )
    tokens = torch.cat([ids, torch.stack(made.token_ids)], dim=1)
    lengths = torch.full((rows,), width + 4)
    routes = TINY.blank(rows, width + 4)
    for row in range(rows):
        known = made.prefix(row).routes
        assert known is not None
        routes[row, : len(known)] = known

    def differences(replay: bool) -> Tensor:
        model = load_model("tiny-qwen3-moe")
        model.load_state_dict(weights)
        replayer = RouteReplayer(model)
        shown = routes if replay else TINY.blank(rows, width + 4)
        with replayer.replaying(shown.flatten(0, 1)):
            logprobs = token_logprobs(model, tokens, lengths)
        return (logprobs[:, 4:] - torch.stack(made.logprobs)).abs()

    assert differences(replay=True).max() < tolerance
    assert (differences(replay=False) > tolerance).float().mean() > 0.002
