"""The memory that a plane holds, as Linux counts it, and its growth."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

#: Pause between two looks at memory that is released late, s; a look costs some milliseconds.
POLL_S = 0.1


def plane_bytes() -> int:
    """Return the bytes held by this process and all it started; a page shared by n counts as 1/n.

    Pages of files are left out: this process's share of torch's libraries grows when any other
    process on the machine unmaps them.
    """
    gc.collect()
    me = psutil.Process()
    return sum(held_bytes(process.pid) for process in [me, *me.children(recursive=True)])


@contextmanager
def few_objects_to_collect() -> Iterator[None]:
    """Leave the objects that there are to no garbage collection inside of the block.

    ``plane_bytes`` collects garbage at each look, and the test process has hundreds of thousands of
    objects: a look costs a third of a second with them, and some milliseconds without. In a process
    that ``preload`` has spared its modules they stay left out: ``gc.unfreeze`` would give back the
    modules too, and each later collection stop a call of the plane for as long.
    """
    spared = _modules_are_spared()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not spared:
            gc.unfreeze()


@cache
def _modules_are_spared() -> bool:
    """Whether ``preload`` has spared modules of this process; counting them takes 50 ms."""
    return gc.get_freeze_count() > 0


def settled_growth(before: int, limit: float, settle_s: float) -> int:
    """Return the plane's growth in bytes since ``before``.

    While the growth is not below ``limit``, memory may be released late: wait for at most
    ``settle_s`` seconds.
    """
    deadline = time.monotonic() + settle_s
    while (grown := plane_bytes() - before) >= limit and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return grown


def held_bytes(pid: int) -> int:
    """Return the anonymous and shared memory of a process in bytes; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    kib = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines)}
    kinds: list[str] = [kind for kind in ("Pss_Anon", "Pss_Shmem") if kind in kib]
    return sum(int(kib[kind]) for kind in kinds or ["Pss"]) << 10  # old kernels
