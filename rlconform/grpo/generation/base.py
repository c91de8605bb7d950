"""``GenerationEngine``: the interface of the engines that generate responses.

    trainer ── refit(weights, version) ──▶ engine        later tokens are made by these weights
    rollout ── generate(prompts, seeds) ─▶ responses     tokens, their logprobs and weight versions

Several threads may generate at once. A thread takes the engine's lock for each token, and a refit
takes it too, so the weights change between two tokens and never within one. The lock serves its
waiters in order: a refit waits for at most one token of each generating thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlconform.grpo.generation.fair_lock import FairLock
from rlconform.grpo.router_replay.route_format import RouteFormat

#: Tells a generation between two tokens whether to stop.
ShouldStop = Callable[[], bool]
#: Gets the number of a row, its whole response, and whether it was truncated.
OnFinished = Callable[[int, "Prefix", bool], object]
#: Gets the URL of a server that has failed, and why.
TellFailure = Callable[[str, str], object]


def never_stop() -> bool:
    """Tell a generation to go on to its end."""
    return False


def ignore_finished(row: int, response: Prefix, truncated: bool) -> None:
    """Do nothing with a row that is finished."""


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
class Prefix:
    """The first k tokens of a response; ``ValueError`` if the shapes differ."""

    token_ids: Tensor  # (k,) int64
    logprobs: Tensor  # (k,) float32
    versions: Tensor  # (k,) int64, of the weights that made each token
    #: (t, L, K) experts of the first t tokens of prompt and response together, all but the last;
    #: None if the engine doesn't record them, or nothing is generated.
    routes: Tensor | None = None

    def __post_init__(self) -> None:
        shapes = [tuple(leaf.shape) for leaf in (self.token_ids, self.logprobs, self.versions)]
        if self.token_ids.dim() != 1 or len(set(shapes)) > 1:
            raise ValueError(f"token ids, logprobs and versions must be (k,), got {shapes}")

    @classmethod
    def empty(cls) -> Prefix:
        """Make the prefix of a response that has no token yet."""
        ids = torch.empty(0, dtype=torch.int64)
        return cls(ids, torch.empty(0, dtype=torch.float32), ids.clone())

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class Responses:
    """B responses, in the order of their prompts, on the CPU.

    ``logprobs`` has the logprob of each token given the tokens before it, under
    ``softmax(logits / logprob_temperature)``. For equal weights and temperature the trainer's
    ``models.token_logprobs`` computes the same values, up to rounding.
    """

    token_ids: list[Tensor]  # B tensors (j,) int64; if a stop token was reached, it is the last
    logprobs: list[Tensor]  # B tensors (j,) float32
    versions: list[Tensor]  # B tensors (j,) int64, version of the weights that made each token
    truncated: Tensor  # (B,) bool, true if there is no stop token within ``max_new_tokens``
    finished: Tensor  # (B,) bool, false for rows that were cut because ``should_stop`` said so
    routes: list[Tensor | None] | None = None  # see ``Prefix.routes``; None if not recorded

    @property
    def weight_version(self) -> int:
        """The version of all tokens; ``ValueError`` if there are several versions or no tokens."""
        versions = sorted(set(torch.cat(self.versions).tolist()))
        if len(versions) != 1:
            raise ValueError(f"expected tokens of one weight version; got {versions}")
        return int(versions[0])

    def prefix(self, row: int) -> Prefix:
        """Return the tokens of a row, from which ``generate`` can go on if it is unfinished."""
        routes = None if self.routes is None else self.routes[row]
        return Prefix(self.token_ids[row], self.logprobs[row], self.versions[row], routes)

    def report_finished(self, on_finished: OnFinished) -> None:
        """Call ``on_finished`` for each finished row, for an engine that knows them only now."""
        truncated = self.truncated.tolist()
        for row in self.finished.nonzero().flatten().tolist():
            on_finished(row, self.prefix(row), truncated[row])

    @classmethod
    def joined(cls, parts: Iterable[Responses]) -> Responses:
        """Concatenate the responses of several calls."""
        all_parts = list(parts)
        recorded = all(part.routes is not None for part in all_parts)
        return cls(
            [row for part in all_parts for row in part.token_ids],
            [row for part in all_parts for row in part.logprobs],
            [row for part in all_parts for row in part.versions],
            torch.cat([part.truncated for part in all_parts]),
            torch.cat([part.finished for part in all_parts]),
            [row for part in all_parts for row in part.routes or []] if recorded else None,
        )


class GenerationEngine(ABC):
    """Generates responses with the weights of the last ``refit``; safe for several threads."""

    #: Version of the current weights; 0 for the initial ones.
    weight_version: int = 0
    #: Format of the experts that it records for router replay; None if it records none.
    route_format: RouteFormat | None = None

    def watch_servers(self, tell: TellFailure) -> None:  # noqa: B027 - not every engine has servers
        """Call ``tell`` when a server has failed; an engine in this process has no server."""

    def __init__(self) -> None:
        #: Held while a token is made, and while weights are replaced.
        self._lock = FairLock()

    def generate(
        self,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        *,
        prefixes: Sequence[Prefix] | None = None,
        should_stop: ShouldStop = never_stop,
        on_finished: OnFinished = ignore_finished,
    ) -> Responses:
        """Generate one response per prompt.

        The random numbers of a row depend only on the row's seed and on the number of the token.
        Equal batches with equal seeds give bit-equal responses if no refit comes between them.

        Args:
            prompts: B prompts.
            seeds: A seed per prompt.
            sampling: How to sample.
            prefixes: Per prompt, the tokens that its response already has. It goes on after them,
                up to ``max_new_tokens`` in total, and includes them. Under the same weights it gets
                the tokens that it would have had in one call; logprobs differ by rounding only.
            should_stop: Is called between two tokens, and before the first. Once it returns true,
                the rows that are not finished are returned as they are.
            on_finished: Is called once for each row that gets finished, in this thread; while
                others go on, if the engine can tell. What it raises ends the generation.

        Raises:
            ValueError: There is not one seed and one prefix per prompt, or a prefix is already a
                whole response.
            ModelFailure: Logits are NaN or infinite.
        """
        if len(seeds) != len(prompts):
            raise ValueError(f"{len(seeds)} seeds for {len(prompts)} prompts")
        if prefixes is None:
            prefixes = [Prefix.empty()] * len(prompts)
        _check_prefixes(prefixes, len(prompts), sampling)
        return self._generate(prompts, seeds, sampling, prefixes, should_stop, on_finished)

    def refit(self, weights: Mapping[str, Tensor], version: int) -> str:
        """Copy new weights, the model's whole ``state_dict``, into the engine, between two tokens.

        Returns:
            ``weights_digest`` of the weights that the engine now holds.

        Raises:
            ValueError: A name is missing or unknown, a shape differs, or the version is below
                ``weight_version``. The engine keeps its weights.
        """
        with self._lock:
            if version < self.weight_version:
                expected = f"expected weights of version {self.weight_version} or later"
                raise ValueError(f"{expected}; got {version}")
            digest = self._load_weights(weights)
            self.weight_version = version
        return digest

    def close(self) -> None:  # noqa: B027 - not every engine holds something
        """Release memory and devices. Idempotent."""

    @abstractmethod
    def _generate(
        self,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        prefixes: Sequence[Prefix],
        should_stop: ShouldStop,
        on_finished: OnFinished,
    ) -> Responses:
        """Generate the responses; ``generate`` has checked the arguments."""

    @abstractmethod
    def _load_weights(self, weights: Mapping[str, Tensor]) -> str:
        """Copy the weights, with the lock held, and return the digest of what the engine holds.

        ``ValueError`` if their names or shapes don't fit the model.
        """


def _check_prefixes(prefixes: Sequence[Prefix], rows: int, sampling: Sampling) -> None:
    if len(prefixes) != rows:
        raise ValueError(f"{len(prefixes)} prefixes for {rows} prompts")
    stops = torch.tensor(sampling.stop_token_ids, dtype=torch.int64)
    for row, prefix in enumerate(prefixes):
        ended = bool(torch.isin(prefix.token_ids, stops).any())
        if ended or len(prefix) >= sampling.max_new_tokens:
            raise ValueError(
                f"prefix {row} is a whole response: it has {len(prefix)} of at most "
                f"{sampling.max_new_tokens} tokens{' and a stop token' if ended else ''}"
            )


def row_seeds(seed: int, sample_ids: Sequence[str], turn: int = 0) -> list[int]:
    """Derive a seed below 2^63 for each row from the run's seed, the row's id and the turn.

    Thus a row's random numbers don't depend on its batch. A prompt has a new id in each step.
    """
    texts = (f"{seed}/{turn}/{sample_id}" for sample_id in sample_ids)
    digests = (blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return [int.from_bytes(digest, "big") >> 1 for digest in digests]
