"""The parts of rows that context-parallel ranks get."""

from __future__ import annotations

import pytest
import torch

from rlconform.grpo.models import TokenOrder
from rlconform.grpo.workers.megatron.context_parallel import slots_by_rank


def padded(rows: int, width: int) -> TokenOrder:
    return TokenOrder.of(torch.full((rows,), width), width, "padded")


def test_a_rank_gets_a_chunk_from_the_start_and_one_from_the_end() -> None:
    first, second = slots_by_rank(padded(2, 8), 2)
    assert first.tolist() == [0, 1, 6, 7, 8, 9, 14, 15]
    assert second.tolist() == [2, 3, 4, 5, 10, 11, 12, 13]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_packed_rows_are_divided_each_for_itself(ranks: int) -> None:
    lengths, chunks = torch.tensor([5, 1, 12]), 2 * ranks
    order = TokenOrder.of(lengths, 12, "packed", chunks, 48)
    parts = slots_by_rank(order, ranks)
    assert sorted(torch.cat(parts).tolist()) == [*range(48)]
    for rank, slots in enumerate(parts):
        for row in range(len(lengths)):
            whole = order.position[order.row == row].chunk(chunks)
            mine = order.position[slots][order.row[slots] == row]
            assert torch.equal(mine, torch.cat([whole[rank], whole[chunks - 1 - rank]]))


def test_all_ranks_attend_to_equally_many_tokens() -> None:
    order = padded(1, 16)
    seen = [int((order.position[slots] + 1).sum()) for slots in slots_by_rank(order, 4)]
    assert len(set(seen)) == 1


def test_rows_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match=r"multiple of 4 tokens for 2 .* ranks; got \[8, 6\]"):
        slots_by_rank(TokenOrder.of(torch.tensor([8, 6]), 8, "packed"), 2)
