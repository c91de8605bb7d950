"""``TurnLoop``: generates rows turn by turn, and goes on with rows that were cut.

    problem ── open_log ──▶ log ── generate ──▶ policy's turn ── respond ──▶ the row ends: on_done
                             ▲        │ cut                        └─ observation
                             │        └──▶ the row keeps its tokens, and the loop returns
                             └── environment's turn ◀──────────────┘

A turn is answered as soon as its last token is there, while other rows go on; so is ``on_done``
called, in the thread that generates, which must not wait there.

Several threads may use one loop. They generate at the same time (the engine's lock lets them take
turns token by token), and take turns at the tokenizer, because those of transformers are not safe
for threads. A task may wait in ``respond``, for a tool, while other threads go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rlconform.grpo.config import MasterConfig
from rlconform.grpo.failures import DataFailure, ModelFailure
from rlconform.grpo.generation import (
    GenerationEngine,
    Prefix,
    Prompts,
    Sampling,
    ShouldStop,
    never_stop,
    row_seeds,
)
from rlconform.grpo.models import environment_turn, log_input_ids, open_log, policy_turn
from rlconform.grpo.rewards.outcome import RewardOutcome
from rlconform.grpo.tasks import EnvStep, PolicyTurn, Problem, RolloutTask, Split
from rlconform.wire.message_logs import MessageLog


@dataclass
class RolloutRow:
    """A row that is being generated, or is done."""

    sample_id: str
    problem: Problem
    log: MessageLog
    turns: list[PolicyTurn] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)  # the turns' tokens in the log
    responses: list[Prefix] = field(default_factory=list)  # the turns' tokens, logprobs, versions
    #: What the policy has written of its next turn, if it was cut.
    cut: Prefix = field(default_factory=Prefix.empty)
    environment: list[EnvStep] = field(default_factory=list)  # its answers, one per turn
    #: The reward, or why there is none; None until it is known.
    outcome: RewardOutcome | None = None
    scorings: int = 0  # how often a scorer was asked
    truncated: bool = False  # whether the last turn reached the token limit
    done: bool = False


#: Gets a row when it is done.
OnDone = Callable[[RolloutRow], object]


class TurnLoop:
    """Generates rows of one split with one engine; safe for several threads."""

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
        self._engine, self._tokenizer, self._task = engine, tokenizer, task
        self._sampling = Sampling(
            max_new_tokens=config.generation.max_new_tokens,
            stop_token_ids=(int(tokenizer.eos_token_id),),
            temperature=config.generation.temperature,
            greedy=split == "val" and config.generation.val_greedy,
        )
        self._text_lock = threading.Lock()

    def open_rows(self, problem: Problem, sample_ids: Sequence[str]) -> list[RolloutRow]:
        """Make rows of a problem; ``DataFailure`` if it leaves no room for a response."""
        with self._text_lock:
            log = open_log(self._tokenizer, problem.messages)
        tokens = len(log_input_ids(log))
        if tokens > self._max_prompt:
            raise DataFailure(
                f"problem {problem.uid!r} has {tokens} tokens, and with generation.max_new_tokens "
                f"only {self._max_prompt} fit policy.max_total_sequence_length"
            )
        return [RolloutRow(sample_id, problem, log) for sample_id in sample_ids]

    def run(
        self,
        rows: Sequence[RolloutRow],
        should_stop: ShouldStop = never_stop,
        on_done: OnDone = lambda _: None,
    ) -> None:
        """Generate until every row is done, or until ``should_stop`` says so between two tokens.

        ``on_done`` gets each row that is done once, while the others are generated. Rows that are
        not done keep their tokens; a later call goes on from there, with the random numbers that
        they would have had. ``ModelFailure`` for a row that is empty or not finite.
        """
        while active := [row for row in rows if not row.done]:
            turn = min(len(row.turns) for row in active)
            of_turn = [row for row in active if len(row.turns) == turn]
            if not self._generate_turn(of_turn, turn, should_stop, on_done):
                return

    def _generate_turn(
        self,
        rows: Sequence[RolloutRow],
        turn: int,
        should_stop: ShouldStop,
        on_done: OnDone,
    ) -> bool:
        """Generate the policy's next turn of each row and respond; return whether none was cut."""

        def finish(index: int, response: Prefix, truncated: bool) -> None:
            row = rows[index]
            self._finish_turn(row, response, truncated)
            if row.done:
                on_done(row)

        ids = [log_input_ids(row.log) for row in rows]
        prompts = Prompts.of(ids, int(self._tokenizer.pad_token_id))
        seeds = row_seeds(self._seed, [row.sample_id for row in rows], turn)
        responses = self._engine.generate(
            prompts,
            seeds,
            self._sampling,
            prefixes=[row.cut for row in rows],
            should_stop=should_stop,
            on_finished=finish,
        )
        cut = (~responses.finished).nonzero().flatten().tolist()
        for index in cut:
            rows[index].cut = responses.prefix(index)
        return not cut

    def _finish_turn(self, row: RolloutRow, response: Prefix, truncated: bool) -> None:
        """Add a whole response to the row, and the environment's answer to it."""
        if not len(response) or not bool(torch.isfinite(response.logprobs).all()):
            raise ModelFailure(
                f"turn {len(row.turns)} of {row.sample_id!r} has {len(response)} tokens with "
                f"logprobs {response.logprobs.tolist()}"
            )
        start = len(log_input_ids(row.log))
        row.cut = Prefix.empty()
        row.spans.append((start, start + len(response)))
        row.responses.append(response)
        row.truncated = truncated
        with self._text_lock:
            row.log = policy_turn(self._tokenizer, row.log, response.token_ids)
        row.turns.append(PolicyTurn(row.log[-1]["content"], ended=not truncated))
        self._respond(row)

    def _respond(self, row: RolloutRow) -> None:
        """Add the environment's answer and, unless the row ends, its observation."""
        answer = self._task.respond(row.problem, row.turns)
        row.environment.append(answer)
        row.done = answer.observation is None or row.truncated
        if answer.observation is None or row.done:
            return
        with self._text_lock:
            answered = environment_turn(
                self._tokenizer, row.log, answer.observation, answer.tool_results
            )
        if len(row.turns) == self._max_turns or len(log_input_ids(answered)) > self._max_prompt:
            row.done = True  # no policy turn would follow the observation
        else:
            row.log = answered
