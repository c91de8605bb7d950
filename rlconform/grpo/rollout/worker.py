"""``RolloutWorker``: the Ray actor that lets the policy answer problems, turn by turn.

    problems ──▶ ``TurnLoop`` ── prompts ──▶ engine ── responses ──▶ rows that are done
    each row that is done ──▶ ``RewardLoop``, a thread ──▶ its reward, while others are generated
    rows ──▶ columns (N, S) and, for the driver, one RowSummary per row

The driver waits for the worker; the engine runs in the worker's process, within the same call. The
call waits for the rewards of its rows when the last of them is done.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract.fields import (
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    ROUTED_EXPERTS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.events.schema import (
    DropCause,
    EventSource,
    RewardFailureCause,
    RolloutFailed,
    ServerFailed,
)
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.events_actor import EventLogPlace, EventsActor
from rlconform.grpo.failures import ModelFailure
from rlconform.grpo.generation import (
    GenerationEngine,
    Prompts,
    ShouldStop,
    build_engine,
    never_stop,
)
from rlconform.grpo.models import load_tokenizer, log_input_ids
from rlconform.grpo.rewards.base import Reward
from rlconform.grpo.rewards.build import build_scorer
from rlconform.grpo.rewards.loop import RewardLoop
from rlconform.grpo.rewards.outcome import FailedReward
from rlconform.grpo.rewards.reward_workers import RewardWorkers
from rlconform.grpo.rollout.rollout_events import RolloutEvents
from rlconform.grpo.rollout.row_rewards import RowRewards
from rlconform.grpo.rollout.turn_loop import RolloutRow, TurnLoop
from rlconform.grpo.router_replay.column import routes_column
from rlconform.grpo.tasks import Problem, Split, build_task
from rlconform.grpo.workers.determinism import make_deterministic
from rlconform.plane import mint_sample_ids
from rlconform.wire import strip_message_logs

#: Object column of a rollout with the turns of each row, without their token ids.
MESSAGE_LOGS = "message_logs"

#: Column (N, S) int64 with the version of the weights that made each token of the policy, and -1
#: elsewhere. Only asynchronous trainers write it: in a synchronous step all versions are equal.
TOKEN_VERSIONS = "token_versions"

#: Columns of a rollout.
ROLLOUT_FIELDS = (
    INPUT_IDS,
    INPUT_LENGTHS,
    GENERATION_LOGPROBS,
    TOKEN_MASK,
    SAMPLE_MASK,
    MESSAGE_LOGS,
)


def rollout_fields(config: MasterConfig) -> list[str]:
    """Return the columns of a rollout without ``token_versions``."""
    routes = [ROUTED_EXPERTS] if config.policy.router_replay.enabled else []
    return [*ROLLOUT_FIELDS, *routes]


@dataclass(frozen=True)
class RowSummary:
    """What the driver needs to know about a row without reading its tensors."""

    reward: float | None  # of the whole row, before scaling; None if it has none
    spans: tuple[tuple[int, int], ...]  # (start, stop) of the policy's tokens, one per turn
    truncated: bool  # whether the last turn was cut off at the token limit
    #: (lowest, highest) version of the weights that wrote the turn, one per turn; without a change
    #: of workers these are the versions of its first and its last token.
    versions: tuple[tuple[int, int], ...]
    components: Mapping[str, float] = field(default_factory=dict)  # of the reward, over the turns
    turn_values: tuple[float, ...] = ()  # process rewards, one per turn; empty if there are none
    extra: Mapping[str, Any] = field(default_factory=dict)  # what else the scorer said of this row
    reward_failure: RewardFailureCause | None = None  # why there is no reward

    @property
    def response_length(self) -> int:
        """Number of tokens that the policy wrote."""
        return sum(stop - start for start, stop in self.spans)


@dataclass(frozen=True)
class Rollout:
    """N rows with their summaries; rows of the same prompt are adjacent.

    The columns are ``input_ids`` (N, S) int64, ``input_lengths`` (N,) int64,
    ``generation_logprobs`` (N, S) float32, ``token_mask`` (N, S) int32, ``sample_mask`` (N,)
    float32, padded on the right to the longest row; and ``message_logs``. ``token_versions``
    (N, S) int64 is added on request, and with router replay ``routed_experts`` (N, S, L, K).
    """

    sample_ids: list[str]  # <uid>_g<i>
    columns: TensorDict
    summaries: list[RowSummary]

    @property
    def weight_version(self) -> int:
        """The lowest version of the weights that wrote a token; the only one without refits."""
        return min(lowest for row in self.summaries for lowest, _ in row.versions)

    @property
    def end_version(self) -> int:
        """The highest version of the weights that wrote a token."""
        return max(highest for row in self.summaries for _, highest in row.versions)


class RolloutWorker(EventsActor):
    """Generates rollouts with the weights of the last ``refit``, on ``cpu`` or ``cuda``.

    After ``build``, several threads may call the other methods except ``close`` at once.
    """

    event_role = "rollout"
    _events: RolloutEvents | None = None

    def __init__(self, device: str) -> None:
        self._device = device
        self._engine: GenerationEngine | None = None
        self._rewards: RewardLoop | None = None
        self._reward_workers: RewardWorkers | None = None
        self._loops_lock = threading.Lock()

    def build(self, config: MasterConfig, reward_workers: RewardWorkers | None = None) -> None:
        """Create the run's engine and its reward loop, after closing those of a previous run.

        ``reward_workers`` score the rows, if the run has a reward model of its own.
        """
        self.close()
        self._reward_workers = reward_workers
        make_deterministic(config.grpo.seed)
        self._config = config
        self._tokenizer = load_tokenizer(config.policy.model_name, config.policy.tokenizer_name)
        self._loops: dict[Split, TurnLoop] = {}  # filled by ``_loop``
        self._rewards = RewardLoop(build_scorer(config, reward_workers), config.reward_loop)
        block = config.async_rl
        self._engine = build_engine(
            config.generation,
            config.policy,
            seed=config.grpo.seed,
            device=self._device,
            recompute_kv_cache=block is not None and block.recompute_kv_cache_after_weight_updates,
        )

    @property
    def engine(self) -> GenerationEngine:
        """The run's engine; ``RuntimeError`` before ``build``."""
        if self._engine is None:
            raise RuntimeError("call build first")
        return self._engine

    def open_events(self, place: EventLogPlace, rank: int, stamp: int) -> EventSource:
        """Open a file of events, and write which weights the engine has."""
        source = super().open_events(place, rank, stamp)
        if self.event_writer is not None:
            self._events = RolloutEvents(self.event_writer)
            self._events.begins_with(self.engine.weight_version)
        self.engine.watch_servers(self._server_failed)
        return source

    def close_events(self) -> None:
        """Write the last line; what comes later is not written. Idempotent."""
        self._events = None
        super().close_events()

    def _server_failed(self, url: str, why: str) -> None:
        self.write_event(ServerFailed(server=url, reason=why))

    def refit(self, weights: Mapping[str, Tensor], version: int, stamp: int = 0) -> str:
        """Replace the weights and return their digest, see ``GenerationEngine.refit``.

        ``stamp`` is the clock of the event log when they were published.
        """
        if self._events is None:
            return self.engine.refit(weights, version)
        self._events.observe(stamp)
        return self._events.applied(version, lambda: self.engine.refit(weights, version))

    def collect(self, problems: Sequence[Problem], split: Split) -> Rollout:
        """Generate a group (in validation a row) per problem.

        Raises ``DataFailure`` if a problem is too long, ``ModelFailure`` if a row is empty or not
        finite, ``RewardFailure`` if a row has no reward and ``reward_loop.on_failure`` is
        ``raise``.
        """
        loop, size = self._loop(split), self._group_size(split)
        ids = iter(mint_sample_ids((problem.uid for problem in problems), size))
        rows = [
            row
            for problem in problems
            for row in loop.open_rows(problem, [next(ids) for _ in range(size)])
        ]
        with self._reward_workers_resting():
            self._answer(loop, rows, split)
        return self._rollout(rows)

    def close(self) -> None:
        """Release the engine's memory and devices, and end the reward loop. Idempotent."""
        if self._rewards is not None:
            self._rewards.close()
            self._rewards = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _answer(
        self,
        loop: TurnLoop,
        rows: Sequence[RolloutRow],
        split: Split,
        should_stop: ShouldStop = never_stop,
        given_up: Future[None] | None = None,
    ) -> None:
        """Generate rows and get their rewards, and write both into the log; until ``given_up``."""
        if self._rewards is None:
            raise RuntimeError("call build first")
        legs = None
        if self._events is not None:
            logged = rows if split == "train" else []
            legs = self._events.started(logged, lambda: self.engine.weight_version)
        with RowRewards(self._rewards, split) as rewards:
            for row in rows:
                if row.done and row.outcome is None:
                    rewards.done(row)  # it was given up before
            try:
                loop.run(rows, should_stop, rewards.done)
            except ModelFailure:
                if legs is not None:
                    legs.ended((RolloutFailed, DropCause.MODEL_FAILURE))
                raise
            if legs is not None:
                legs.ended()
            try:
                rewards.wait(given_up)
            finally:
                if legs is not None:
                    legs.rewarded()

    def _reward_workers_resting(self) -> AbstractContextManager[None]:
        """Let the reward workers rest in the block, if they share this worker's pool and must."""
        if self._reward_workers is None:
            return nullcontext()
        return self._reward_workers.resting()

    def _group_size(self, split: Split) -> int:
        grpo = self._config.grpo
        training = split == "train"
        return grpo.num_generations_per_prompt if training else grpo.val_num_generations_per_prompt

    def _loop(self, split: Split) -> TurnLoop:
        """Return the split's loop; the first call creates its task."""
        engine = self.engine
        with self._loops_lock:
            if split not in self._loops:
                task = build_task(self._config.data, self._config.grpo.seed, split)
                self._loops[split] = TurnLoop(self._config, engine, self._tokenizer, task, split)
            return self._loops[split]

    def _rollout(self, rows: Sequence[RolloutRow], *, token_versions: bool = False) -> Rollout:
        columns = _columns(rows, int(self._tokenizer.pad_token_id))
        width = columns[INPUT_IDS].shape[1]
        if token_versions:
            columns[TOKEN_VERSIONS] = _token_versions(rows, width)
        if self.engine.route_format is not None:
            columns[ROUTED_EXPERTS] = routes_column(
                [[response.routes for response in row.responses] for row in rows],
                columns[INPUT_LENGTHS].tolist(),
                width,
                self.engine.route_format,
            )
        return Rollout([row.sample_id for row in rows], columns, [_summary(row) for row in rows])


def token_mask(spans: Sequence[Sequence[tuple[int, int]]], width: int) -> Tensor:
    """Build the mask (N, width) int32 of the policy's tokens from the spans of N rows."""
    mask = torch.zeros((len(spans), width), dtype=torch.int32)
    for row, row_spans in zip(mask, spans, strict=True):
        for start, stop in row_spans:
            row[start:stop] = 1
    return mask


def _summary(row: RolloutRow) -> RowSummary:
    bounds = [response.versions.aminmax() for response in row.responses]
    versions = tuple((int(lowest), int(highest)) for lowest, highest in bounds)
    of_row = (tuple(row.spans), row.truncated, versions)
    match row.outcome:
        case Reward() as reward:
            return RowSummary(
                reward.value, *of_row, reward.components, reward.turn_values, reward.extra
            )
        case FailedReward() as failed:
            return RowSummary(None, *of_row, reward_failure=failed.cause)
        case None:
            raise RuntimeError(f"row {row.sample_id!r} was never scored")


def _columns(rows: Sequence[RolloutRow], pad_token_id: int) -> TensorDict:
    """Build the rows' columns, padded to the longest row."""
    prompts = Prompts.of([log_input_ids(row.log) for row in rows], pad_token_id)
    logprobs = torch.zeros(prompts.input_ids.shape, dtype=torch.float32)
    for target, row in zip(logprobs, rows, strict=True):
        for (start, stop), response in zip(row.spans, row.responses, strict=True):
            target[start:stop] = response.logprobs
    columns: dict[str, Any] = {
        INPUT_IDS: prompts.input_ids,
        INPUT_LENGTHS: prompts.lengths,
        GENERATION_LOGPROBS: logprobs,
        TOKEN_MASK: token_mask([row.spans for row in rows], prompts.input_ids.shape[1]),
        SAMPLE_MASK: torch.tensor([float(isinstance(row.outcome, Reward)) for row in rows]),
        MESSAGE_LOGS: strip_message_logs(row.log for row in rows),
    }
    return TensorDict(columns, batch_size=[len(rows)])


def _token_versions(rows: Sequence[RolloutRow], width: int) -> Tensor:
    """Build the column ``token_versions`` (N, width)."""
    versions = torch.full((len(rows), width), -1, dtype=torch.int64)
    for target, row in zip(versions, rows, strict=True):
        for (start, stop), response in zip(row.spans, row.responses, strict=True):
            target[start:stop] = response.versions
    return versions
