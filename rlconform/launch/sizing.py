"""How much a recipe asks of its plane: memory, capacity and ports, from its configuration; pure.

    row     = S * token_bytes + row_bytes + log(messages, text) + 8 * columns
    plane   = rows * row
    rows    = synchronous: those of a step, and of one more generation batch with dynamic sampling;
              asynchronous: slots * generations per prompt, see ``AsyncRLConfig.slots``

S is the length of a row in tokens, by default the longest that the recipe allows. Columns are
jagged: padding takes no memory. A plane keeps an index beside the values, 8 bytes a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlconform.backends.columns import codec
from rlconform.backends.config import RayStoreConfig, TransferQueueConfig
from rlconform.contract import ConfigError
from rlconform.contract.fields import (
    ADVANTAGES,
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
    ROUTED_EXPERTS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.models.tiny import TINY_MODELS, tiny_config
from rlconform.grpo.rollout.worker import MESSAGE_LOGS, TOKEN_VERSIONS
from rlconform.grpo.router_replay.route_format import RouteFormat
from rlconform.launch.sites import PORTS_PER_JOB
from rlconform.wire.message_logs import TOKEN_SPAN

#: Bytes that the index counts for each value.
_INDEX_BYTES = 8
#: Bytes of text that a token stands for; a character in the tiny models.
_TEXT_BYTES, _TINY_TEXT_BYTES = 4, 1
#: Routers of the recipes' models, by the last part of their paths.
_ROUTERS = {"Qwen3-30B-A3B": RouteFormat(layers=48, top_k=8, experts=128)}
#: A plane holds waste as large as its live bytes before it compacts; and some rows to spare.
_SPARE = 1.5


@dataclass(frozen=True)
class PlaneSize:
    """What the rows of a run take."""

    rows: int  # in the plane at once
    row_tokens: float
    token_bytes: dict[str, int]  # bytes per token, by column
    row_bytes: dict[str, float]  # bytes per row, by column

    @property
    def bytes_per_row(self) -> float:
        """Bytes of one row, with its share of the index."""
        columns = len(self.token_bytes) + len(self.row_bytes)
        values = self.row_tokens * sum(self.token_bytes.values()) + sum(self.row_bytes.values())
        return values + _INDEX_BYTES * columns

    @property
    def total(self) -> float:
        """Bytes of all rows."""
        return self.rows * self.bytes_per_row


@dataclass(frozen=True)
class Need:
    """A resource: what the rows need, what the recipe gives, and where to change it."""

    what: str
    needed: float
    given: float | None  # None if the recipe leaves it open
    key: str

    @property
    def suffices(self) -> bool:
        """Whether what is given is enough, or left open."""
        return self.given is None or self.given >= self.needed


def plane_size(config: MasterConfig, row_tokens: float | None = None) -> PlaneSize:
    """Return what a run's rows take; they have ``row_tokens``, by default the longest allowed."""
    longest = config.policy.max_total_sequence_length
    tokens = float(longest) if row_tokens is None else row_tokens
    if not 0 < tokens <= longest:
        raise ConfigError(f"expected rows of 1 to {longest} tokens; got {tokens:g}")
    per_token = {
        INPUT_IDS: 8,
        GENERATION_LOGPROBS: 4,
        TOKEN_MASK: 4,
        PREV_LOGPROBS: 4,
        ADVANTAGES: 4,
    }
    if config.loss_fn.needs_reference_policy:
        per_token[REFERENCE_POLICY_LOGPROBS] = 4
    if config.async_rl is not None:
        per_token[TOKEN_VERSIONS] = 8
    if config.policy.router_replay.enabled:
        routes = routes_of(config.policy.model_name)
        per_token[ROUTED_EXPERTS] = routes.layers * routes.top_k * routes.dtype.itemsize
    per_row = {INPUT_LENGTHS: 8.0, SAMPLE_MASK: 4.0, MESSAGE_LOGS: _log_bytes(config, tokens)}
    return PlaneSize(rows_in_flight(config), tokens, per_token, per_row)


def rows_in_flight(config: MasterConfig) -> int:
    """Return the rows that the plane holds at once, at most."""
    grpo = config.grpo
    if config.async_rl is not None:
        groups = config.async_rl.slots(grpo.num_prompts_per_step)
        return groups * grpo.num_generations_per_prompt
    if not grpo.use_dynamic_sampling:
        return grpo.rows_per_step
    # Kept rows, fewer than those of a step, and a generation batch that is not yet selected from.
    return grpo.rows_per_step - 1 + round(grpo.rows_per_step * grpo.batch_multiplier)


def routes_of(model: str) -> RouteFormat:
    """Return the routers of a model that the recipes name; ``ConfigError`` for another."""
    if model in TINY_MODELS:
        sizes: Any = tiny_config(model)
        return RouteFormat(sizes.num_hidden_layers, sizes.num_experts_per_tok, sizes.num_experts)
    name = model.rstrip("/").rpartition("/")[2]
    if name not in _ROUTERS:
        raise ConfigError(f"the routers of {model} are not known: one of {', '.join(_ROUTERS)}")
    return _ROUTERS[name]


def needs(config: MasterConfig, size: PlaneSize, object_store: int | None) -> list[Need]:
    """Compare what the rows take with what the plane's section gives them."""
    plane = config.data_plane
    found = [Need("rows", size.rows, plane.storage_capacity, "data_plane.storage_capacity")]
    if isinstance(plane, RayStoreConfig):
        key = "job.object_store_bytes, of the first node, whose controller maps all rows"
        found.append(Need("bytes", size.total * _SPARE, object_store, key))
    elif isinstance(plane, TransferQueueConfig) and plane.backend == "simple":
        each = size.total / plane.num_storage_units
        key = f"main memory of each of {plane.num_storage_units} data_plane.num_storage_units"
        found.append(Need("bytes", each, None, key))
    elif isinstance(plane, TransferQueueConfig):
        key = "data_plane.global_segment_size, of the processes that lend one together"
        found.append(Need("bytes", size.total, plane.global_segment_size, key))
    return found


def ports(config: MasterConfig) -> dict[str, str]:
    """Return the ports that a job's nodes listen on, by whose they are."""
    found = {"Ray": f"{PORTS_PER_JOB} per job from the site's first_port, by the job's number"}
    plane = config.data_plane
    if isinstance(plane, TransferQueueConfig):
        found["TransferQueue"] = (
            f"{3 + plane.num_storage_units} free ones: 3 of the controller, 1 of each storage unit"
        )
        if plane.backend == "mooncake_cpu":
            processes = config.cluster.dp_size + config.cluster.rollout_workers + 1
            found["Mooncake"] = (
                f"2 free ones of the master, at least 1 of each of {processes} clients"
            )
    if config.generation.backend == "vllm":
        found["vLLM"] = "free ones between the ranks of an engine"
    return found


def _log_bytes(config: MasterConfig, tokens: float) -> float:
    """Return the bytes of a row's message log: a prompt and each turn, with the text of a row."""
    tiny = config.policy.model_name in TINY_MODELS
    messages = 2 * config.grpo.max_rollout_turns
    text = int(tokens * (_TINY_TEXT_BYTES if tiny else _TEXT_BYTES)) // messages
    message = {"role": "assistant", "content": "x" * text, TOKEN_SPAN: (0, text)}
    log = [message] * messages
    return float(len(codec.pack(log)))
