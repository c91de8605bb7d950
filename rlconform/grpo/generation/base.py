"""``GenerationEngine``: the interface of the engines that generate responses.

    trainer ── refit(weights, version) ──▶ engine        later responses use these weights
    rollout ── generate(prompts, seeds) ─▶ responses     tokens, logprobs, weight version

Both calls block until they are done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True)
class Prompts:
    """B prompts; ``ValueError`` if a shape or dtype is wrong, or a length is out of range."""

    input_ids: Tensor  # (B, P) int64, padded on the right
    lengths: Tensor  # (B,) int64, valid tokens of each row, from 1 to P

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
        """Pad B rows (j,) of token ids; ``ValueError`` if there is no row, or a row is empty."""
        if not rows:
            raise ValueError("there are no prompts")
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        padded = pad_sequence(list(rows), batch_first=True, padding_value=pad_token_id)
        return cls(padded, lengths)

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Sampling:
    """How to sample from ``softmax(logits / temperature)``; ``ValueError`` for an invalid value."""

    max_new_tokens: int
    #: A response ends with the first of these tokens and includes it.
    stop_token_ids: tuple[int, ...]
    temperature: float = 1.0  # above 0
    #: Take the most likely token instead of sampling; the temperature is ignored.
    greedy: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(
                f"temperature must be above 0, got {self.temperature}; for the most likely tokens "
                f"set greedy=True"
            )

    @property
    def logprob_temperature(self) -> float:
        """Temperature of the returned logprobs: 1 for greedy tokens, which are not sampled."""
        return 1.0 if self.greedy else self.temperature


@dataclass(frozen=True)
class Responses:
    """B responses, in the order of their prompts, on the CPU.

    ``logprobs`` has the logprob of each token given the tokens before it, under
    ``softmax(logits / logprob_temperature)``. For equal weights and temperature the trainer's
    ``models.token_logprobs`` computes the same values, up to rounding.
    """

    token_ids: list[Tensor]  # B tensors (j,) int64; if a stop token was reached, it is the last
    logprobs: list[Tensor]  # B tensors (j,) float32
    truncated: Tensor  # (B,) bool, true if there is no stop token within ``max_new_tokens``
    weight_version: int  # of the weights that generated the responses

    @classmethod
    def joined(cls, parts: Iterable[Responses]) -> Responses:
        """Concatenate the responses of several calls; ``ValueError`` if weight versions differ."""
        all_parts = list(parts)
        versions = sorted({part.weight_version for part in all_parts})
        if len(versions) != 1:
            raise ValueError(f"expected responses of one weight version; got {versions}")
        return cls(
            [row for part in all_parts for row in part.token_ids],
            [row for part in all_parts for row in part.logprobs],
            torch.cat([part.truncated for part in all_parts]),
            versions[0],
        )


class GenerationEngine(ABC):
    """Generates responses with the weights of the last ``refit``."""

    #: Version of the current weights; 0 for the initial ones.
    weight_version: int = 0

    def generate(self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling) -> Responses:
        """Generate one response per prompt; ``ValueError`` unless there is one seed per prompt.

        The random numbers of a row depend only on the row's seed. Equal batches with equal seeds
        give bit-equal responses.
        """
        if len(seeds) != len(prompts):
            raise ValueError(f"{len(seeds)} seeds for {len(prompts)} prompts")
        return self._generate(prompts, seeds, sampling)

    def refit(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Copy new weights, the model's whole ``state_dict``, into the engine.

        Raises:
            ValueError: A name is missing or unknown, a shape differs, or the version is below
                ``weight_version``. The engine keeps its weights.
        """
        if version < self.weight_version:
            expected = f"expected weights of version {self.weight_version} or later"
            raise ValueError(f"{expected}; got {version}")
        self._load_weights(weights)
        self.weight_version = version

    def close(self) -> None:  # noqa: B027 - not every engine holds something
        """Release memory and devices. Idempotent."""

    @abstractmethod
    def _generate(self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling) -> Responses:
        """Generate the responses; ``generate`` has checked the arguments."""

    @abstractmethod
    def _load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy the weights; ``ValueError`` if their names or shapes don't fit the model."""


def row_seeds(seed: int, sample_ids: Sequence[str], turn: int = 0) -> list[int]:
    """Derive a seed below 2^63 for each row from the run's seed, the row's id and the turn.

    Thus a row's random numbers don't depend on its batch. A prompt has a new id in each step.
    """
    texts = (f"{seed}/{turn}/{sample_id}" for sample_id in sample_ids)
    digests = (blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return [int.from_bytes(digest, "big") >> 1 for digest in digests]
