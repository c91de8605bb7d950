"""What writes the responses: one interface, whichever engine stands behind it.

    trainer ── refit(weights, version) ──▶ engine        from then on its weights are these
    rollout ── generate(prompts, seeds) ─▶ responses     their tokens, logprobs, weight version

A call returns when it is done; nobody waits for anybody else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Prompts:
    """B prompts.

    Attributes:
        input_ids: (B, P) int64, padded on the right.
        lengths: (B,) int64, valid tokens of each row, from 1 to P.

    Raises:
        ValueError: Tensors of another shape or type, or a length out of range.
    """

    input_ids: Tensor
    lengths: Tensor

    def __post_init__(self) -> None:
        if self.input_ids.dim() != 2 or self.input_ids.dtype != torch.int64:
            raise ValueError(
                f"input_ids must be (B, P) int64, got {tuple(self.input_ids.shape)} "
                f"{self.input_ids.dtype}"
            )
        rows, width = self.input_ids.shape
        if self.lengths.shape != (rows,) or self.lengths.dtype != torch.int64:
            raise ValueError(
                f"lengths must be ({rows},) int64, got {tuple(self.lengths.shape)} "
                f"{self.lengths.dtype}"
            )
        if bool(((self.lengths < 1) | (self.lengths > width)).any()):
            raise ValueError(f"a prompt has 1 to {width} tokens, got {self.lengths.tolist()}")

    @classmethod
    def of(cls, rows: Sequence[Tensor], pad_token_id: int) -> Prompts:
        """Prompts of B rows (j,) of token ids; ``ValueError`` for none, or an empty row."""
        if not rows:
            raise ValueError("there are no prompts")
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        padded = torch.full((len(rows), int(lengths.max())), pad_token_id, dtype=torch.int64)
        for into, row in zip(padded, rows, strict=True):
            into[: len(row)] = row
        return cls(padded, lengths)

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: from ``softmax(logits / temperature)``, the whole of it.

    Attributes:
        max_new_tokens: Most tokens of a response.
        stop_token_ids: A response ends with the first of these, which belongs to it.
        temperature: Above 0.
        greedy: Take the likeliest token in place of drawing one, whatever the temperature.

    Raises:
        ValueError: A value out of range.
    """

    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    temperature: float = 1.0
    greedy: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(
                f"temperature must be above 0, got {self.temperature}; for the likeliest tokens "
                f"say greedy=True"
            )

    @property
    def logprob_temperature(self) -> float:
        """Temperature of the logprobs returned: 1 for likeliest tokens, which were not drawn."""
        return 1.0 if self.greedy else self.temperature


@dataclass(frozen=True)
class Responses:
    """B responses, in the order of their prompts.

    Attributes:
        token_ids: B tensors (j,) int64, on the CPU; the stop token, where one was reached, is the
            last.
        logprobs: B tensors (j,) float32: natural logarithm of each token's probability under
            ``softmax(logits / logprob_temperature)``, given all before it. A trainer's
            ``models.token_logprobs`` at that temperature and these weights comes to the same, up
            to the rounding of another kernel.
        truncated: (B,) bool, no stop token within ``max_new_tokens``.
        weight_version: Of the weights that wrote them.
    """

    token_ids: list[Tensor]
    logprobs: list[Tensor]
    truncated: Tensor
    weight_version: int

    @classmethod
    def joined(cls, parts: Iterable[Responses]) -> Responses:
        """Responses of several calls, one after the other.

        Raises:
            ValueError: No parts, or parts of different weights.
        """
        every = list(parts)
        versions = sorted({part.weight_version for part in every})
        if len(versions) != 1:
            raise ValueError(f"responses of one batch are of one weight version, got {versions}")
        return cls(
            [row for part in every for row in part.token_ids],
            [row for part in every for row in part.logprobs],
            torch.cat([part.truncated for part in every]),
            versions[0],
        )


class GenerationEngine(ABC):
    """Generates under weights that it is given.

    Example:
        engine = build_engine(config.generation, config.policy, seed=config.grpo.seed)
        engine.refit(policy.state_dict(), version=step)
        responses = engine.generate(Prompts.of(rows, pad_token_id), seeds, Sampling(32, (end_id,)))
        engine.close()
    """

    @property
    @abstractmethod
    def weight_version(self) -> int:
        """Version of the weights it has now; 0 for those it started with."""

    @abstractmethod
    def generate(self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling) -> Responses:
        """A response to each of B prompts.

        Args:
            prompts: B rows.
            seeds: B numbers; a row's draws depend on its own seed and nothing else. The same batch
                with the same seeds gives the same bytes.
            sampling: How tokens are drawn.

        Raises:
            ValueError: Another number of seeds than of prompts.
        """

    @abstractmethod
    def refit(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over a copy of the weights.

        Args:
            weights: Every tensor of the model's ``state_dict``, by its name there.
            version: Not below ``weight_version``.

        Raises:
            ValueError: A name or shape that the model doesn't have, a name missing, or an older
                version. The engine keeps its weights.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back memory and devices. Idempotent."""
