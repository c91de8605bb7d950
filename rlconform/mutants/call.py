"""Helpers for mutants that replace one method of a plane by a function."""

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

    ``call()`` calls the correct method with the same arguments, and ``call(rows=1)`` calls it with
    one argument changed::

        @claim_mutant("CLAIM-04", evidence="10304 rows ready")
        def ClaimLimitedToPage(claim: MethodCall) -> Claimed:
            '''Returns at most 100 rows from a claim.'''
            return claim(rows=min(claim.rows, 100))

    Attributes:
        plane: The client or engine whose method was called.
        given: Names of the arguments that the caller gave; the others have their default values.
        notes: A dict, one per plane, in which the function can keep values between calls.
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
    """Return a subclass of ``plane``, named like ``change``, whose ``method`` calls ``change``."""

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
    """Return a decorator like ``decorator``, for functions that ``apply`` can call.

    The replaced method returns ``apply(call, function)``; ``decorator`` also gets ``defaults``.
    """

    def derived(fails: str, **how: Any) -> Callable[[Callable[..., Any]], Mutant]:
        def decorate(function: Callable[..., Any]) -> Mutant:
            change = update_wrapper(lambda call: apply(call, function), function)
            return decorator(fails, **defaults, **how)(change)

        return decorate

    return derived


class State(Generic[Value]):
    """An attribute of a client or engine that starts as ``make()`` in each instance.

    Its value is made at the first use, so the class needs no ``__init__``.
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
