"""``RolloutWorker``: the Ray actor that lets the policy answer problems, turn by turn.

    problems ── open_log ──▶ logs ── generate ──▶ policy's turn ── respond ──▶ reward
                               ▲                                     └─ observation, or the row ends
                               └── environment's turn ◀──────────────┘
    logs ──▶ columns (N, S) and, for the driver, one RowSummary per row

The driver waits for the worker; the engine runs in the worker's process, within the same call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rlconform.contract.fields import (
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.generation import (
    GenerationEngine,
    Prompts,
    Sampling,
    build_engine,
    row_seeds,
)
from rlconform.grpo.models import (
    environment_turn,
    load_tokenizer,
    log_input_ids,
    open_log,
    policy_turn,
)
from rlconform.grpo.tasks import PolicyTurn, Problem, RolloutTask, Split, build_task
from rlconform.grpo.workers.determinism import make_deterministic
from rlconform.plane import mint_sample_ids
from rlconform.wire import strip_message_logs
from rlconform.wire.message_logs import MessageLog

#: Object column of a rollout with the turns of each row, without their token ids.
MESSAGE_LOGS = "message_logs"

#: Columns of a rollout.
ROLLOUT_FIELDS = (
    INPUT_IDS,
    INPUT_LENGTHS,
    GENERATION_LOGPROBS,
    TOKEN_MASK,
    SAMPLE_MASK,
    MESSAGE_LOGS,
)


@dataclass(frozen=True)
class RowSummary:
    """What the driver needs to know about a row without reading its tensors."""

    reward: float  # the task's, summed over the turns
    spans: tuple[tuple[int, int], ...]  # (start, stop) of the policy's tokens, one per turn
    truncated: bool  # whether the last turn was cut off at the token limit

    @property
    def response_length(self) -> int:
        """Number of tokens that the policy wrote."""
        return sum(stop - start for start, stop in self.spans)


@dataclass(frozen=True)
class Rollout:
    """N rows with their summaries; rows of the same prompt are adjacent.

    The columns are ``input_ids`` (N, S) int64, ``input_lengths`` (N,) int64,
    ``generation_logprobs`` (N, S) float32, ``token_mask`` (N, S) int32, ``sample_mask`` (N,)
    float32, padded on the right to the longest row; and ``message_logs``.
    """

    sample_ids: list[str]  # <uid>_g<i>
    columns: TensorDict
    summaries: list[RowSummary]
    weight_version: int  # of the weights that generated the rows


@dataclass
class _Row:
    """A row that is being generated."""

    sample_id: str
    problem: Problem
    log: MessageLog
    turns: list[PolicyTurn] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    logprobs: list[Tensor] = field(default_factory=list)
    reward: float = 0.0
    truncated: bool = False
    done: bool = False


class RolloutWorker:
    """Generates rollouts with the weights of the last ``refit``, on ``cpu`` or ``cuda``."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._engine: GenerationEngine | None = None

    def build(self, config: MasterConfig) -> None:
        """Create the run's engine, after closing the engine of a previous run."""
        self.close()
        make_deterministic(config.grpo.seed)
        self._config = config
        self._tokenizer = load_tokenizer(config.policy.model_name, config.policy.tokenizer_name)
        self._tasks: dict[Split, RolloutTask] = {}  # filled by ``collect``
        self._engine = build_engine(
            config.generation, config.policy, seed=config.grpo.seed, device=self._device
        )

    @property
    def engine(self) -> GenerationEngine:
        """The run's engine; ``RuntimeError`` before ``build``."""
        if self._engine is None:
            raise RuntimeError("call build first")
        return self._engine

    def refit(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Replace the weights, see ``GenerationEngine.refit``."""
        self.engine.refit(weights, version)

    def collect(self, problems: Sequence[Problem], split: Split) -> Rollout:
        """Generate a group (in validation a row) per problem; ``ValueError`` if one is too long."""
        if split not in self._tasks:
            self._tasks[split] = build_task(self._config.data, self._config.grpo.seed, split)
        task = self._tasks[split]
        loop = _TurnLoop(self._config, self.engine, self._tokenizer, task, split)
        rows = loop.run(problems)
        pad = int(self._tokenizer.pad_token_id)
        return Rollout(
            [row.sample_id for row in rows],
            _columns(rows, pad),
            [RowSummary(row.reward, tuple(row.spans), row.truncated) for row in rows],
            self.engine.weight_version,
        )

    def close(self) -> None:
        """Release the engine's memory and devices. Idempotent."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class _TurnLoop:
    """Generates all rows of one rollout, turn by turn."""

    def __init__(
        self,
        config: MasterConfig,
        engine: GenerationEngine,
        tokenizer: PreTrainedTokenizerBase,
        task: RolloutTask,
        split: Split,
    ) -> None:
        self._seed = config.grpo.seed
        self._max_turns = config.grpo.max_rollout_turns
        self._max_prompt = (
            config.policy.max_total_sequence_length - config.generation.max_new_tokens
        )
        self._group_size = config.grpo.num_generations_per_prompt if split == "train" else 1
        self._engine, self._tokenizer, self._task = engine, tokenizer, task
        self._sampling = Sampling(
            max_new_tokens=config.generation.max_new_tokens,
            stop_token_ids=(int(tokenizer.eos_token_id),),
            temperature=config.generation.temperature,
            greedy=split == "val" and config.generation.val_greedy,
        )

    def run(self, problems: Sequence[Problem]) -> list[_Row]:
        """Generate a group of rows per problem, turn by turn, until every row has ended."""
        ids = iter(mint_sample_ids((problem.uid for problem in problems), self._group_size))
        rows = [
            _Row(next(ids), problem, self._open_log(problem))
            for problem in problems
            for _ in range(self._group_size)
        ]
        for turn in range(self._max_turns):
            active = [row for row in rows if not row.done]
            if active:
                self._generate_turn(active, turn)
        return rows

    def _open_log(self, problem: Problem) -> MessageLog:
        log = open_log(self._tokenizer, problem.messages)
        tokens = len(log_input_ids(log))
        if tokens > self._max_prompt:
            raise ValueError(
                f"problem {problem.uid!r} has {tokens} tokens, and with generation.max_new_tokens "
                f"only {self._max_prompt} fit policy.max_total_sequence_length"
            )
        return log

    def _generate_turn(self, rows: Sequence[_Row], turn: int) -> None:
        """Generate the policy's next turn of each row, and add the environment's answer."""
        ids = [log_input_ids(row.log) for row in rows]
        prompts = Prompts.of(ids, int(self._tokenizer.pad_token_id))
        seeds = row_seeds(self._seed, [row.sample_id for row in rows], turn)
        responses = self._engine.generate(prompts, seeds, self._sampling)
        cut_off = responses.truncated.tolist()
        for row, prompt, tokens, logprobs, truncated in zip(
            rows, ids, responses.token_ids, responses.logprobs, cut_off, strict=True
        ):
            row.spans.append((len(prompt), len(prompt) + len(tokens)))
            row.logprobs.append(logprobs)
            row.log = policy_turn(self._tokenizer, row.log, tokens)
            row.turns.append(PolicyTurn(row.log[-1]["content"], ended=not truncated))
            row.truncated = truncated
            self._respond(row)

    def _respond(self, row: _Row) -> None:
        """Add the environment's reward and, unless the row ends, its observation."""
        outcome = self._task.respond(row.problem, row.turns)
        row.reward += outcome.reward
        row.done = outcome.observation is None or row.truncated
        if outcome.observation is None or row.done:
            return
        answered = environment_turn(self._tokenizer, row.log, outcome.observation)
        if len(row.turns) == self._max_turns or len(log_input_ids(answered)) > self._max_prompt:
            row.done = True  # no policy turn would follow the observation
        else:
            row.log = answered


def token_mask(spans: Sequence[Sequence[tuple[int, int]]], width: int) -> Tensor:
    """Build the mask (N, width) int32 of the policy's tokens from the spans of N rows."""
    mask = torch.zeros((len(spans), width), dtype=torch.int32)
    for row, row_spans in zip(mask, spans, strict=True):
        for start, stop in row_spans:
            row[start:stop] = 1
    return mask


def _columns(rows: Sequence[_Row], pad_token_id: int) -> TensorDict:
    """Build the rows' columns, padded to the longest row."""
    prompts = Prompts.of([log_input_ids(row.log) for row in rows], pad_token_id)
    logprobs = torch.zeros(prompts.input_ids.shape, dtype=torch.float32)
    for target, row in zip(logprobs, rows, strict=True):
        for (start, stop), values in zip(row.spans, row.logprobs, strict=True):
            target[start:stop] = values
    columns: dict[str, Any] = {
        INPUT_IDS: prompts.input_ids,
        INPUT_LENGTHS: prompts.lengths,
        GENERATION_LOGPROBS: logprobs,
        TOKEN_MASK: token_mask([row.spans for row in rows], prompts.input_ids.shape[1]),
        SAMPLE_MASK: torch.ones(len(rows), dtype=torch.float32),
        MESSAGE_LOGS: strip_message_logs(row.log for row in rows),
    }
    return TensorDict(columns, batch_size=[len(rows)])
