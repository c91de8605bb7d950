"""What happens in a partition before a scattered check uses it."""

from __future__ import annotations

from rlconform.certify.plugin.used_plane import MOST_WITH_EARLIER_ROWS, Beginning
from rlconform.certify.scenarios.earlier_rows import EarlierRows


def test_only_the_first_partitions_of_a_check_get_earlier_rows() -> None:
    """A check of 300 partitions would fill a plane that holds 100,000 rows."""
    beginning = Beginning(("looker",), EarlierRows())
    begun = [beginning.of_partition(number) for number in range(300)]
    assert [each.rows is not None for each in begun].count(True) == MOST_WITH_EARLIER_ROWS
    assert begun[0].rows is not None
    assert {each.lookers for each in begun} == {("looker",)}
