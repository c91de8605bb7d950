"""TAG-01 over so many rows, each with a text of its own, that tables of texts and rows run full."""

from __future__ import annotations

import torch

from rlconform.certify.assertions.expect import expect, expect_column
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest

#: Steps, and rows of each: more texts and rows than 15 bits number, of which few live at a time.
STEPS, ROWS = 4, 8_704


@requirement("TAG-01", leans_on=("GET-01", "CLAIM-02", "CLEAR-01"))
def test_rows_beyond_fifteen_bits_of_a_run_have_their_own_texts(part: PartitionUnderTest) -> None:
    """Planes that number the texts or rows of all steps may run out of numbers."""
    for step in part.rounds(STEPS, time_share=1 / 2):
        numbers = range(step * ROWS, (step + 1) * ROWS)
        ids = [f"r{n}" for n in numbers]
        due = {one: {"note": f"text {n}"} for one, n in zip(ids, numbers, strict=True)}
        part.put(ids, list(due.values()), x=torch.tensor(numbers))
        got = tags_by_id(part.claim("train", batch_size=ROWS))
        wrong = [(i, got.get(i), due[i]) for i in ids if got.get(i) != due[i]]
        what = f"a text of its own on each row of step {step}"
        expect(not wrong, what, f"of {len(wrong)} rows another, such as {wrong[:1]}")
        expect_column(part.get(ids, "x"), "x", list(torch.tensor(numbers)))
        part.clear(ids)
