"""CLAIM with more claims in a row than a GRPO step makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest

#: More claims than a step makes.
MANY_CLAIMS = 300


@requirement("CLAIM-02")
def test_many_claims_in_a_row_return_each_row_once(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=MANY_CLAIMS)
    ids = [f"r{n}" for n in range(MANY_CLAIMS)]
    part.put_labeled(ids)
    claimed = [i for _ in ids for i in part.claim(batch_size=1).sample_ids]
    expect_equal(Counter(claimed), Counter(ids), f"rows of {MANY_CLAIMS} claims of one row each")
    expect_equal(part.claim(batch_size=1).sample_ids, [], f"rows of claim {MANY_CLAIMS + 1}")
    expect(part.consumed(), "every row consumed", f"False after {MANY_CLAIMS} claims")
