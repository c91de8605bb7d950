"""Synthetic rollouts like those of production, the same for a seed on every machine.

    rollout = rollout_batch(16, 4, seed=7, min_tokens=256, max_tokens=4096)
    meta = kv_first_write(client, rollout.columns, rollout.sample_ids, "train", tags=rollout.tags)

All values come from the raw stream of numpy's PCG64, which numpy keeps the same from release to
release; torch's generators and numpy's distributions do not guarantee this.
"""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict

from rlconform.contract import Tags
from rlconform.contract.fields import (
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    SAMPLE_MASK,
    TOKEN_MASK,
    TOTAL_REWARD,
)
from rlconform.plane.columns import mint_sample_ids
from rlconform.wire.message_logs import MessageLog

#: Column of a rollout with images; the contract does not name it.
PIXEL_VALUES = "pixel_values"
#: Tag of a row that the engine cut at its length limit. It is no column, as the schema has no such
#: column and a plane may refuse unknown ones.
TRUNCATED = "truncated"

#: Token ids are smaller than this.
VOCABULARY = 151_643
#: Outside the vocabulary, so that it is no valid token, and not 0, so that tokens that were padded
#: like a mask are found.
PAD_TOKEN_ID = VOCABULARY

#: Every third group has equal rewards, so that nothing is learned from it.
ZERO_STD_EVERY = 3

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class SyntheticRollout:
    """A rollout of N = prompts x group size rows; the rows of a group are adjacent.

    Attributes:
        sample_ids: N names from ``mint_sample_ids``.
        columns: Padded, batch size (N,): ``input_ids`` (N, S) int64, ``PAD_TOKEN_ID`` beyond a
            row's length; ``generation_logprobs`` (N, S) bfloat16 and ``token_mask`` (N, S) int32,
            0 on all that the policy did not write; ``input_lengths`` (N,) int64; ``sample_mask``
            (N,) int32, 0 for aborted and truncated rows; ``total_reward`` (N,) float32; with
            images ``pixel_values`` (N, C, H, W) bfloat16.
        tags: N dicts with ``input_lengths``, ``weight_version``, the group's reward ``std``, and
            ``truncated``, a bool.
        message_logs: N lists of messages, of one or more turns; the ``token_ids`` of a row's
            messages, end to end, are its valid ``input_ids``, in separate memory.
    """

    sample_ids: list[str]
    columns: TensorDict
    tags: list[Tags]
    message_logs: list[MessageLog]

    @property
    def lengths(self) -> list[int]:
        """Number of valid tokens of each row."""
        lengths: list[int] = self.columns[INPUT_LENGTHS].tolist()
        return lengths

    @property
    def pad_values(self) -> dict[str, int]:
        """Pad value of each per-token column."""
        return {INPUT_IDS: PAD_TOKEN_ID, GENERATION_LOGPROBS: 0, TOKEN_MASK: 0}


def rollout_batch(
    n_prompts: int,
    group_size: int,
    seed: int = 0,
    min_tokens: int = 8,
    max_tokens: int = 64,
    *,
    max_turns: int = 3,
    aborted: int = 0,
    weight_version: int = 1,
    width_multiple: int = 1,
    image_shape: tuple[int, int, int] | None = None,
) -> SyntheticRollout:
    """Return a rollout of ``n_prompts`` groups, the same for the same arguments.

    The ``group_size`` rows of a group share their prompt's tokens. A row has ``min_tokens`` to
    ``max_tokens`` valid tokens, its prompt included. It has at most ``max_turns`` turns of the
    policy; the environment answers between two turns, and in half of the rows after the last turn,
    so that these rows end on masked tokens. The responses of ``aborted`` rows, spread over the
    batch, have no tokens. S is the longest row rounded up to ``width_multiple``. ``image_shape`` is
    the (C, H, W) of each image. Rollouts of different seeds have different ids and values.

    Raises:
        ValueError: A count below 1, a negative seed, rows of fewer than 2 tokens, ``max_tokens``
            below ``min_tokens``, more aborted rows than rows.
    """
    n_rows = n_prompts * group_size
    if min(n_prompts, group_size, max_turns, width_multiple) < 1 or seed < 0:
        raise ValueError("prompts, group size, turns and width multiple count from 1, seeds from 0")
    if not 2 <= min_tokens <= max_tokens:
        raise ValueError(f"rows have 2 tokens or more, got {min_tokens} to {max_tokens}")
    if not 0 <= aborted <= n_rows:
        raise ValueError(f"{aborted} of {n_rows} rows can't be aborted")

    draws = _Draws(seed)
    group = np.repeat(np.arange(n_prompts), group_size)
    prompts = (1 + draws.below(min_tokens // 2, "prompts", n_prompts))[group]
    lengths = min_tokens + draws.below(max_tokens - min_tokens + 1, "lengths", n_rows)
    cut_short = np.arange(aborted) * n_rows // max(aborted, 1)
    lengths[cut_short] = prompts[cut_short]
    truncated = draws.below(8, "truncated", n_rows) == 0
    truncated[cut_short] = False
    width = -(-int(lengths.max()) // width_multiple) * width_multiple

    turns = _turns(draws, prompts, lengths, max_turns)
    tokens = _tokens(draws, group, prompts, lengths, width)
    written = _policy_tokens(turns, width)
    rewards = _rewards(draws, n_prompts, group_size)
    columns = {
        INPUT_IDS: torch.from_numpy(tokens),
        INPUT_LENGTHS: torch.from_numpy(lengths),
        GENERATION_LOGPROBS: torch.where(
            torch.from_numpy(written), -_magnitudes(draws, "logprobs", n_rows, width), 0
        ),
        TOKEN_MASK: torch.from_numpy(written).int(),
        SAMPLE_MASK: torch.from_numpy(written.any(axis=1) & ~truncated).int(),
        TOTAL_REWARD: torch.from_numpy(rewards).flatten(),
    }
    if image_shape is not None:
        columns[PIXEL_VALUES] = _magnitudes(draws, "pixels", n_rows, *image_shape)
    sample_ids = mint_sample_ids((f"s{seed}p{prompt}" for prompt in range(n_prompts)), group_size)
    stds = [statistics.pstdev(of_group) for of_group in rewards.tolist()]
    return SyntheticRollout(
        sample_ids=sample_ids,
        columns=TensorDict(columns, batch_size=[n_rows]),
        tags=[
            {
                INPUT_LENGTHS: length,
                "weight_version": weight_version,
                "std": stds[prompt],
                TRUNCATED: cut,
            }
            for length, prompt, cut in zip(
                lengths.tolist(), group.tolist(), truncated.tolist(), strict=True
            )
        ],
        message_logs=[
            _message_log(*row) for row in zip(sample_ids, columns[INPUT_IDS], turns, strict=True)
        ],
    )


class _Draws:
    """Random numbers by name, so that adding a column does not change the values of others."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def below(self, bound: int, name: str, *shape: int) -> Integers:
        """Return integers from 0 to ``bound`` - 1; ``bound`` is much smaller than 2^32."""
        stream = np.random.PCG64([self._seed, zlib.crc32(name.encode())])
        raw = stream.random_raw(int(np.prod(shape)))
        return ((raw >> np.uint64(32)) % np.uint64(bound)).astype(np.int64).reshape(shape)


def _turns(
    draws: _Draws, prompts: Integers, lengths: Integers, max_turns: int
) -> list[tuple[int, ...]]:
    """Return the boundaries of each row's turns after its prompt: policy, environment, policy, ...

    A turn may have no tokens. An aborted row has one turn, of the policy.
    """
    responses = lengths - prompts
    counts = 1 + draws.below(2 * max_turns, "turns", len(lengths))
    counts[responses == 0] = 1
    places = draws.below(2**31, "cuts", len(lengths), 2 * max_turns)
    return [
        (start, *sorted((start + places[row, 1:count] % (end - start + 1)).tolist()), end)
        for row, (start, end, count) in enumerate(
            zip(prompts.tolist(), lengths.tolist(), counts.tolist(), strict=True)
        )
    ]


def _tokens(
    draws: _Draws, group: Integers, prompts: Integers, lengths: Integers, width: int
) -> Integers:
    """Return (N, width) token ids: the group's prompt, the row's own response, padding."""
    place = np.arange(width)
    shared = draws.below(VOCABULARY, "prompt tokens", int(group[-1]) + 1, width)[group]
    own = draws.below(VOCABULARY, "response tokens", len(group), width)
    valid = np.where(place < prompts[:, None], shared, own)
    return np.where(place < lengths[:, None], valid, PAD_TOKEN_ID)


def _policy_tokens(turns: Sequence[Sequence[int]], width: int) -> NDArray[np.bool_]:
    """Return an (N, width) mask, true on the tokens of the policy's turns."""
    written = np.zeros((len(turns), width), np.bool_)
    for row, bounds in zip(written, turns, strict=True):
        for start, end in zip(bounds[::2], bounds[1::2], strict=False):
            row[start:end] = True
    return written


def _magnitudes(draws: _Draws, name: str, *shape: int) -> torch.Tensor:
    """Return random bfloat16 from 2^-31 to 16; float16 can't represent the small values."""
    bits = (96 << 7) + draws.below(35 << 7, name, *shape)
    return torch.from_numpy(bits.astype(np.int16)).view(torch.bfloat16)


def _rewards(draws: _Draws, n_prompts: int, group_size: int) -> NDArray[np.float32]:
    """Return (prompts, group size) tenths from 0 to 1; only every third group has equal rewards."""
    tenths = draws.below(11, "rewards", n_prompts, group_size)
    for prompt, of_group in enumerate(tenths):
        if prompt % ZERO_STD_EVERY == 1:
            of_group[:] = of_group[0]
        elif (of_group == of_group[0]).all():
            of_group[0] = (of_group[0] + 1) % 11  # a group of one stays equal nevertheless
    return (tenths / 10).astype(np.float32)


def _message_log(sample_id: str, row: torch.Tensor, bounds: Sequence[int]) -> MessageLog:
    """Return a message for the prompt and one per turn, with every type of value in JSON."""
    starts = (0, *bounds)
    return [
        {
            "role": ("environment", "assistant")[turn % 2] if turn else "user",
            "content": f"{sample_id}, turn {turn}: “réponse” 文" if end > start else "",
            "token_ids": row[start:end].clone(),
            "info": {"turn": turn, "tool": None if turn % 2 else ["calc", {"retry": False}]},
        }
        for turn, (start, end) in enumerate(zip(starts, bounds, strict=False))
    ]
