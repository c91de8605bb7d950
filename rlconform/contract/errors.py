"""Errors that a plane raises. Checks match the type, never the text.

The four ``Unknown*`` errors are ``LookupError``: any plane may raise ``KeyError`` or ``IndexError``
in their place and is just as right.
"""

from __future__ import annotations


class DataPlaneError(Exception):
    """Root of rlconform's own plane errors."""


class UnknownPartition(DataPlaneError, LookupError):
    """The partition was never registered and nothing was put in it."""


class UnknownTask(DataPlaneError, LookupError):
    """The consumer task was not registered for the partition."""


class UnknownSample(DataPlaneError, LookupError):
    """A sample id was never put, or was cleared."""


class UnknownField(DataPlaneError, LookupError):
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
