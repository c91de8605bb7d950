"""Settings for all tests of rlconform: property settings, and a check for leftover threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from rlconform.backends.memory import engine

# The machine may be busy, and one run's examples must not affect the next. The checks of planes
# set each of these themselves.
settings.register_profile(
    "kit", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kit")

#: Seconds that a thread has to end after the test that started it.
PATIENCE_S = 10.0
#: Threads that a library starts once per process, on first use.
OF_LIBRARIES = {"tqdm_monitor"}
THREADS = pytest.StashKey[set[threading.Thread]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Record the threads that exist after fixture setup; these may outlive the test."""
    yield
    item.stash[THREADS] = set(threading.enumerate())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that leaves a thread, because it takes time and memory from later tests."""
    yield
    if THREADS not in item.stash:
        return  # its fixtures failed
    deadline = time.monotonic() + PATIENCE_S
    left = []
    for thread in set(threading.enumerate()) - item.stash[THREADS]:
        if thread.name in OF_LIBRARIES:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            left.append(thread.name)
    assert not left, f"the test's threads to end within {PATIENCE_S:g} s of it; they go on: {left}"


@pytest.fixture(scope="module", autouse=True)
def own_planes() -> Iterator[None]:
    """Give each module of tests a list of open planes of its own.

    A client that doesn't start a plane attaches to the newest one of the process. That may be one
    which another module has left open.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_OPEN", [])
        yield
