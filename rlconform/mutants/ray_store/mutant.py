"""Decorators for mutants of ``ray_store``: a defect in the client or in the controller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from rlconform.backends.ray_store import TARGET, connection
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller
from rlconform.mutants.mutant import Mutant, mutant

#: For a client class with a defect.
ray_mutant = partial(mutant, TARGET)

_STARTING = threading.Lock()


def controller_mutant(
    *fails: str, evidence: str, may_fail: tuple[str, ...] = (), chance: bool = True
) -> Callable[[type[Controller]], Mutant]:
    """``ray_mutant`` for a controller class with a defect, called by the correct client."""

    def decorate(controller: type[Controller]) -> Mutant:
        class Client(RayStoreClient):
            def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
                with _started_as(controller):
                    super().__init__(cfg, bootstrap)

        Client.__name__, Client.__doc__ = controller.__name__, controller.__doc__
        return ray_mutant(*fails, evidence=evidence, may_fail=may_fail, chance=chance)(Client)

    return decorate


@contextmanager
def _started_as(controller: type[Controller]) -> Iterator[None]:
    """Within the block, new planes use this controller class."""
    with _STARTING:
        name = "Controller"
        right = getattr(connection, name)
        setattr(connection, name, controller)
        try:
            yield
        finally:
            setattr(connection, name, right)
