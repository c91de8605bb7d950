"""Errors that a plane raises. Checks match the type, never the text.

The four ``Unknown*`` errors are ``KeyError``, as callers of NeMo-RL's clients catch that. Any plane
may raise another ``LookupError`` in their place and is just as right.
"""

from __future__ import annotations


class DataPlaneError(Exception):
    """Root of rlconform's own plane errors."""


class _UnknownName(DataPlaneError, KeyError):
    """Base of the errors about a name that the plane does not know."""

    __str__ = Exception.__str__  # KeyError's would put the message in quotes


class UnknownPartition(_UnknownName):
    """The partition was never registered and nothing was put in it."""


class UnknownTask(_UnknownName):
    """The consumer task was not registered for the partition."""


class UnknownSample(_UnknownName):
    """A sample id was never put, or was cleared."""


class UnknownField(_UnknownName):
    """A field is not produced for every row asked for."""


class CapacityExceeded(DataPlaneError):
    """The plane holds as many rows as it can; the put was refused and left nothing behind."""


class ForeignRow(DataPlaneError):
    """The store handed out bytes that belong to another row; they were not returned."""


class PlaneUnavailable(DataPlaneError, ConnectionError):
    """A process of the plane is gone or does not answer within the deadline."""


class ClientClosed(DataPlaneError, RuntimeError):
    """The client was closed before this call."""


class ConfigError(DataPlaneError, ValueError):
    """A configuration that can't be used; the message names the file and the key."""
