"""The errors that a plane raises. Checks compare their types only, never their texts.

The four ``Unknown*`` errors are subclasses of ``KeyError``, which callers of NeMo-RL's clients
catch. A plane may raise any other ``LookupError`` instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class DataPlaneError(Exception):
    """Base class of rlconform's own plane errors."""


class _UnknownName(DataPlaneError, KeyError):
    """Base class of the errors about a name that the plane does not know."""

    __str__ = Exception.__str__  # KeyError's own puts the message in quotes


class UnknownPartition(_UnknownName):
    """The partition was never registered and nothing was put in it."""


class UnknownTask(_UnknownName):
    """The consumer task was not registered for the partition."""


class UnknownSample(_UnknownName):
    """A sample id was never put, or was cleared."""


class UnknownField(_UnknownName):
    """A field is not produced for every requested row."""


class CapacityExceeded(DataPlaneError):
    """The plane is full; the put was refused and left nothing behind."""


class ForeignRow(DataPlaneError):
    """The store returned the bytes of another row, which the client discarded."""


class PlaneUnavailable(DataPlaneError, ConnectionError):
    """A process of the plane is gone or does not answer within the deadline."""


class ClientClosed(DataPlaneError, RuntimeError):
    """The client was closed before this call."""


class ConfigError(DataPlaneError, ValueError):
    """A configuration that can't be used; the message names the file and the key."""


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a hint such as ``"; did you mean 'memory'?"``, or "" if no known name is similar."""
    close = get_close_matches(str(name), sorted(map(str, known)), n=2)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
