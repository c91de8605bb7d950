"""Decorators for mutants of ``ray_store``: a defect in the client or in the controller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

from rlconform.backends.ray_store import TARGET, connection
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller
from rlconform.mutants.call import MethodCall, replaced
from rlconform.mutants.mutant import Mutant, mutant

#: Decorator of a client class with a defect.
ray_mutant = partial(mutant, TARGET)


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


#: Held while a client starts a plane with another controller class.
_STARTING = threading.Lock()


def controller_mutant(
    fails: str, *, chance: bool = True, **how: Any
) -> Callable[[type[Controller]], Mutant]:
    """Return a decorator for a controller class with a defect, which the correct client calls."""

    def decorate(controller: type[Controller]) -> Mutant:
        class Client(RayStoreClient):
            def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
                with _STARTING, patch.object(connection, "Controller", controller):
                    super().__init__(cfg, bootstrap)

        Client.__name__, Client.__doc__ = controller.__name__, controller.__doc__
        return ray_mutant(fails, chance=chance, **how)(Client)

    return decorate
