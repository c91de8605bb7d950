"""Decorators for mutants of ``ray_store``: a defect in the client or in the controller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar
from unittest.mock import patch

from rlconform.backends.ray_store import TARGET, connection
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import MethodCall, replaced
from rlconform.mutants.mutant import Mutant, mutant

#: Decorator of a client class with a defect.
ray_mutant = partial(mutant, TARGET)
#: Requirements of any wrong answer in a scenario, after a certain change or to a certain process.
_CIRCUMSTANCES = "REG-03 REG-04 REG-08 PUT-16 CLEAR-04 CLEAR-08 LIFE-02 LIFE-06 LIFE-07"


def interplay_mutant(
    fails: str, *, may_fail: str = "", **how: Any
) -> Callable[[Callable[..., Any]], Mutant]:
    """Return a decorator for a client that goes wrong if two processes do different halves."""
    others = " ".join({*_CIRCUMSTANCES.split(), *may_fail.split()} - {*fails.split()})
    return ray_mutant(fails, may_fail=others, interplay=True, **how)


def ray_call_mutant(
    method: Callable[..., Any],
    fails: str,
    *,
    plane: type[RayStoreClient] = RayStoreClient,
    **how: Any,
) -> Callable[[Callable[[MethodCall], Any]], Mutant]:
    """Return a decorator for a function that replaces one method of the client.

    ``plane`` is a client class without a defect, from which the mutant is derived.
    """
    return lambda change: ray_mutant(fails, **how)(replaced(plane, method, change))


#: Decorator of a client class with a defect that shows under faults or load.
durability_mutant = partial(ray_mutant, level="durability")

#: Held while a client starts a plane with another controller class.
_STARTING = threading.Lock()


class ControllerClient(RayStoreClient):
    """A client without a defect that starts its plane with ``controller_class``."""

    controller_class: ClassVar[type[Controller]] = Controller

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        with _STARTING, patch.object(connection, "Controller", self.controller_class):
            super().__init__(cfg, bootstrap)


def controller_mutant(
    fails: str, *, chance: bool = True, **how: Any
) -> Callable[[type[Controller]], Mutant]:
    """Return a decorator for a controller class with a defect, which the correct client calls."""

    def decorate(controller: type[Controller]) -> Mutant:
        class Client(ControllerClient):
            controller_class = controller

        Client.__name__, Client.__doc__ = controller.__name__, controller.__doc__
        return ray_mutant(fails, chance=chance, **how)(Client)

    return decorate


def ray_engine_mutant(
    fails: str, *, client: type[ControllerClient] = ControllerClient, **how: Any
) -> Callable[[type[RayStoreEngine]], Mutant]:
    """Return a decorator for an engine class with a defect, which the correct client calls."""

    def decorate(engine: type[RayStoreEngine]) -> Mutant:
        class Client(client):  # type: ignore[valid-type,misc]
            def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
                super().__init__(cfg, bootstrap)
                self._engine = engine(self._connection)

        Client.__name__, Client.__doc__ = engine.__name__, engine.__doc__
        return ray_mutant(fails, **how)(Client)

    return decorate
