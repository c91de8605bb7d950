"""What pages do with the texts that they insert."""

from __future__ import annotations

import pytest

from rlconform._page import breakable


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("acme/shared_ring", "acme/<wbr>shared_<wbr>ring"),
        ("acme.plane:TARGET", "acme.plane:<wbr>TARGET"),
        ("memory_", "memory_"),
        ("</h1>", "&lt;/<wbr>h1&gt;"),
    ],
)
def test_a_long_name_breaks_behind_its_parts(name: str, shown: str) -> None:
    assert breakable(name) == shown
