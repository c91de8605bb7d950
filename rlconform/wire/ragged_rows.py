"""``RaggedRows``: the lengths and offsets of N ragged rows, and the two kernels that copy them.

    padded (N, S, ...)  ── take ──▶  values (T, ...)  ── pad ──▶  padded (N, W, ...)

``values`` are the concatenated rows, T tokens in all. Both kernels copy a token as whole integer
words, so that every dtype is copied bit for bit (NaN payloads and -0.0 included) by the same two
torch calls, and a token with trailing dimensions costs one copy per eight bytes, not per element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

Lengths = Tensor | Sequence[int]

#: Integer dtype of a word, by its size in bytes.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

#: Largest index that fits int32, which needs half the memory traffic of int64.
_INT32_LIMIT = 2**31 - 1


class RaggedRows:
    """The checked lengths of N rows; indices derived from them are computed once.

        rows = RaggedRows([2, 0, 3])
        values = rows.take_padded(padded)  # (3, S, ...) -> (5, ...)
        nested = rows.nest(values)  # jagged (3, j, ...)
        padded = rows.pad(values, 4, 0)  # (3, 4, ...)

    Fields packed by one ``RaggedRows`` share their offsets, so torch treats them as equally ragged
    and allows arithmetic between them. ``lengths`` are (N,) non-negative integers, else
    ``ValueError``; ``device`` is the device of the tokens, by default the device of the lengths.
    """

    def __init__(self, lengths: Lengths, device: torch.device | None = None) -> None:
        given = torch.as_tensor(lengths)
        if given.dim() != 1:
            raise ValueError(f"lengths must be (N,), got shape {tuple(given.shape)}")
        if given.numel() and (
            given.is_floating_point() or given.is_complex() or given.dtype == torch.bool
        ):
            raise ValueError(f"lengths must be integers, got {given.dtype}")
        counts = given.detach().to(torch.int64)
        self.count: int = counts.numel()
        self.shortest: int = int(counts.min()) if self.count else 0
        self.longest: int = int(counts.max()) if self.count else 0
        self.total: int = int(counts.sum())
        if self.shortest < 0:
            raise ValueError(f"lengths must not be negative, got {self.shortest}")
        self.lengths: Tensor = counts.to(device) if device is not None else counts
        self._padded_positions: dict[int, Tensor] = {}

    @cached_property
    def offsets(self) -> Tensor:
        """(N + 1,) int64: row i is ``values[offsets[i] : offsets[i + 1]]``."""
        offsets = self.lengths.new_zeros(self.count + 1)
        torch.cumsum(self.lengths, 0, out=offsets[1:])
        return offsets

    def take(self, tokens: Tensor, starts: Tensor) -> Tensor:
        """Copy ``tokens[starts[i] : starts[i] + lengths[i]]`` of every row i to a (T, ...) tensor.

        ``tokens`` is (M, ...) and ``starts`` (N,) int64; every span must be inside ``tokens``.
        """
        return _select(tokens, self._positions(starts, tokens.shape[0]))

    def take_padded(self, padded: Tensor) -> Tensor:
        """Copy ``padded[i, :lengths[i]]`` of every row i, concatenated: (N, S, ...) -> (T, ...).

        ``ValueError`` for another number of rows, no token dimension, or S below the longest row.
        """
        if padded.dim() < 2 or padded.shape[0] != self.count or padded.shape[1] < self.longest:
            raise ValueError(
                f"a per-token field of {self.count} rows of up to {self.longest} tokens must be "
                f"({self.count}, {self.longest} or more, ...), got {tuple(padded.shape)}"
            )
        width = padded.shape[1]
        if width not in self._padded_positions:
            starts = torch.arange(self.count, device=self.lengths.device) * width
            self._padded_positions[width] = self._positions(starts, self.count * width)
        return _select(padded.flatten(0, 1), self._padded_positions[width])

    def pad(self, values: Tensor, width: int | None, pad_value: complex) -> Tensor:
        """Copy rows of ``values`` (T, ...) into a (N, width, ...) tensor padded with ``pad_value``.

        By default ``width`` is the length of the longest row. ``ValueError`` if ``width`` is below
        the longest row, or the dtype can't hold ``pad_value``.
        """
        width = self.longest if width is None else width
        if width < self.longest:
            raise ValueError(f"width {width} is below the longest row, {self.longest} tokens")
        padded = filled((self.count, width, *values.shape[1:]), pad_value, values)
        source = _plain(values)
        size = _word_size(source)
        steps = torch.arange(width, device=values.device)
        valid = steps < self.lengths[:, None]
        target = _as_words(padded.flatten(0, 1), size)
        target = target.view(self.count, width, target.shape[1])
        target.masked_scatter_(valid.unsqueeze(-1), _as_words(source, size))
        return padded

    def nest(self, values: Tensor) -> Tensor:
        """Return ``values`` (T, ...) as a jagged (N, j, ...) tensor, without a copy."""
        return torch.nested.nested_tensor_from_jagged(
            values, self.offsets, min_seqlen=self.shortest, max_seqlen=self.longest
        )

    def _positions(self, starts: Tensor, size: int) -> Tensor:
        """Return the (T,) index of every row's tokens among ``size`` tokens, row after row.

        The index is the in-place cumulative sum of the steps from one token to the next: 1 within
        a row, and at the start of a row also the distance from the end of the previous one. The
        distances of empty rows add up. This needs one buffer and few parallel regions, each of
        which costs milliseconds on shared cores.
        """
        ends = starts + self.lengths
        gaps = starts - torch.cat([ends.new_zeros(1), ends])[:-1]
        dtype = torch.int32 if size <= _INT32_LIMIT else torch.int64
        steps = torch.ones(self.total + 1, dtype=dtype, device=starts.device)
        steps[0] = 0
        steps.index_add_(0, self.offsets[:-1], gaps.to(dtype))
        return steps.cumsum_(0)[:-1]


def filled(shape: Sequence[int], value: complex, like: Tensor) -> Tensor:
    """Return a tensor of ``shape`` filled with ``value``, with the dtype and device of ``like``.

    ``ValueError`` if the dtype can't hold ``value``, which torch would wrap or truncate silently.
    """
    dtype = like.dtype
    try:
        held = torch.full((), value, dtype=dtype).item()
    except RuntimeError as error:
        raise ValueError(f"pad value {value!r} does not fit {dtype}") from error
    rounds = dtype.is_floating_point or dtype.is_complex
    if not rounds and held != value:
        raise ValueError(f"pad value {value!r} does not fit {dtype}")
    return torch.full(tuple(shape), value, dtype=dtype, device=like.device)


def owned(tensor: Tensor) -> Tensor:
    """Return a contiguous copy without grad; cloning resolves a lazy conjugation or negation."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _plain(tokens: Tensor) -> Tensor:
    """Return ``tokens`` contiguous, without grad or lazy operations; copy only if needed."""
    return tokens.detach().resolve_conj().resolve_neg().contiguous()


def _select(tokens: Tensor, index: Tensor) -> Tensor:
    """Return ``tokens[index]``, copied bit for bit."""
    source = _plain(tokens)
    words = _as_words(source, _word_size(source))
    # For single words the kernel is twice as fast on a vector as on (M, 1).
    picked = words.squeeze(1).index_select(0, index)
    return picked.view(-1).view(tokens.dtype).view(index.numel(), *tokens.shape[1:])


def _word_size(tokens: Tensor) -> int:
    """Return the size in bytes of the widest word that divides a token and the storage offset."""
    token_bytes = math.prod(tokens.shape[1:]) * tokens.itemsize
    return math.gcd(8, token_bytes, tokens.storage_offset() * tokens.itemsize)


def _as_words(tokens: Tensor, size: int) -> Tensor:
    """View contiguous ``tokens`` (M, ...) as (M, K) words of ``size`` bytes."""
    token_words = math.prod(tokens.shape[1:]) * tokens.itemsize // size
    # Flat first: a contiguous tensor may keep odd strides in dimensions of size one, which a view
    # as a wider dtype would refuse.
    return tokens.view(-1).view(_WORDS[size]).view(tokens.shape[0], token_words)
