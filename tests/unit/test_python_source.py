"""Source is read in one thread at a time, as Python 3.11 needs it."""

from __future__ import annotations

import ast
import sys
from concurrent.futures import ThreadPoolExecutor

from rlconform._python_source import parse

SOURCE = "\n".join(f"x{n} = [{'(' * 20}{n}{')' * 20}]" for n in range(60))


def test_threads_read_source_at_the_same_time() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            trees = list(pool.map(parse, [SOURCE] * 64))
    finally:
        sys.setswitchinterval(interval)
    assert {ast.dump(tree) for tree in trees} == {ast.dump(ast.parse(SOURCE))}
