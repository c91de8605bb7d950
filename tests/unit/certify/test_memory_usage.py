"""What a look at a plane's memory leaves behind in the process of the checks."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rlconform.certify import memory_usage
from rlconform.certify.memory_usage import few_objects_to_collect


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    memory_usage._modules_are_spared.cache_clear()
    yield
    gc.unfreeze()
    memory_usage._modules_are_spared.cache_clear()


def test_all_objects_are_collected_again_after_the_block() -> None:
    with few_objects_to_collect():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_modules_that_a_preload_has_spared_stay_spared() -> None:
    gc.freeze()
    spared = gc.get_freeze_count()
    with few_objects_to_collect():
        pass
    assert gc.get_freeze_count() >= spared
