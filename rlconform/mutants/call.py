"""A function in place of one method of a plane, for mutants with a defect in one method."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper, wraps
from inspect import signature
from typing import Any, Generic, TypeVar

from rlconform.mutants.mutant import Mutant

Plane = TypeVar("Plane")
Value = TypeVar("Value")


class MethodCall:
    """A call of the replaced method, with the arguments of the caller as attributes.

    ``call()`` returns what the correct method returns for the same arguments, and ``call(rows=1)``
    what it returns for another value of one of them::

        @claim_mutant("CLAIM-04", evidence="8192 rows ready")
        def ClaimLimitedToPage(claim: MethodCall) -> Claimed:
            '''Returns at most 100 rows from a claim.'''
            return claim(rows=min(claim.rows, 100))

    Attributes:
        plane: The client or engine whose method was called.
        given: Names of the arguments that the caller gave; the others have their default values.
        notes: A dict of the plane, for what the function must know in later calls.
    """

    def __init__(
        self, method: Callable[..., Any], plane: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        bound = signature(method).bind(plane, *args, **kwargs)
        self.plane = plane
        self.given = set(bound.arguments)
        self.notes: dict[Any, Any] = vars(plane).setdefault("_notes", {})
        self._method = method
        bound.apply_defaults()
        self._arguments = bound.arguments

    def __getattr__(self, argument: str) -> Any:
        return self._arguments[argument]

    def __call__(self, **changed: Any) -> Any:
        return self._method(**{**self._arguments, **changed})


def replaced(
    plane: type[Plane], method: Callable[..., Any], change: Callable[[MethodCall], Any]
) -> type[Plane]:
    """A subclass of a client or engine, named like ``change``, which replaces its ``method``."""

    @wraps(method)
    def replacement(self: Plane, *args: Any, **kwargs: Any) -> Any:
        return change(MethodCall(method, self, args, kwargs))

    about = {"__doc__": change.__doc__, "__module__": change.__module__}
    return type(change.__name__, (plane,), {method.__name__: replacement, **about})


def applied(
    decorator: Callable[..., Callable[[Callable[[MethodCall], Any]], Mutant]],
    apply: Callable[[MethodCall, Any], Any],
    **defaults: Any,
) -> Callable[..., Callable[[Callable[..., Any]], Mutant]]:
    """Derive the decorator of smaller functions, which ``apply`` gets with the call.

    ``decorator`` is that of functions of a ``MethodCall``; ``defaults`` are arguments for it.
    """

    def derived(fails: str, **how: Any) -> Callable[[Callable[..., Any]], Mutant]:
        def decorate(function: Callable[..., Any]) -> Mutant:
            change = update_wrapper(lambda call: apply(call, function), function)
            return decorator(fails, **defaults, **how)(change)

        return decorate

    return derived


class State(Generic[Value]):
    """An attribute of a client or engine class that is ``make()`` at first in each instance.

    It is made at its first use, so that no class needs an ``__init__`` for it.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, plane: Any, owner: type) -> Value:
        if plane is None:  # Ray reads the attributes of an actor's class
            return self  # type: ignore[return-value]
        value: Value = vars(plane).setdefault(self._name, self._make())
        return value

    def __set__(self, plane: Any, value: Value) -> None:
        vars(plane)[self._name] = value
