"""``PlaneSession``: opens and closes the plane under test in a test process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.isolation.actor_pool import ActorPool
from rlconform.certify.isolation.hosts import RayHost, ray_hosts
from rlconform.certify.plugin.round_trip import remarks_on_types, round_trip
from rlconform.certify.plugin.unwritten import NEEDED, message, unwritten_methods
from rlconform.certify.recording.base_exceptions import only_exceptions
from rlconform.certify.recording.busy_time import BusyTime
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.recording.shorten import error_text
from rlconform.certify.scenarios.block_size import BlockSize
from rlconform.certify.scenarios.earlier_rows import EarlierRows
from rlconform.certify.target import open_client
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import ConfigError, DataPlaneClient, Level, Target, includes

#: Packages that a level's checks import, and the extra that brings them.
_NEEDS: Mapping[Level, Mapping[str, str]] = {
    "functional": {"ray": "ray"},
    "e2e": {"ray": "ray", "transformers": "grpo"},
    "durability": {"ray": "ray"},
}


def require_packages(level: Level) -> None:
    """Raise a ``ConfigError`` that names the extra to install if a package is missing."""
    for package, extra in _NEEDS.get(level, {}).items():
        if find_spec(package) is None:
            raise ConfigError(
                f"level {level} needs the Python package {package}: "
                f'pip install "rlconform[{extra}]", or certify one process only: --level unit'
            )


class PlaneSession:
    """One target at one level of certification.

    ``prepare()`` starts what rlconform needs; ``owner()`` opens the plane at its first call, and
    returns the same client each time. With isolation ``test``, ``renew()`` closes the plane after
    each check. ``on_starting`` is called with 0.0 when planes and processes begin to start or end,
    and with the seconds that this took when it is done.
    """

    def __init__(
        self,
        spec: str,
        target: Target,
        config: Mapping[str, Any],
        level: Level,
        on_starting: Callable[[float], None] = lambda _seconds: None,
        spread: bool = False,
    ) -> None:
        self.spec, self.target, self.config, self.level = spec, target, config, level
        self._spread = spread
        self.hosts: Sequence[RayHost] = ()  # over which the processes of checks are spread
        self._owner: DataPlaneClient | None = None
        self._actors: ActorPool | None = None
        self.earlier_rows = EarlierRows()
        self.block_size = BlockSize()
        self.took_steps = False  # earlier steps, since the plane was opened
        self._ray: Any = None
        self._was_open = False
        self._was_healthy = False
        self.starting = BusyTime(on_starting)  # runs while planes and processes start and end

    @property
    def several_processes(self) -> bool:
        """Whether checks may use Ray actors, so that Ray must run before the plane opens."""
        return includes(self.level, "functional")

    def prepare(self) -> None:
        """Start Ray if checks use several processes; this takes rlconform's time."""
        require_packages(self.level)
        if self._spread and not self.several_processes:
            raise ConfigError("--spread: checks of level unit have one process; use --level")
        if self.several_processes and self._ray is None:
            from rlconform.backends.ray_runtime import ensure_ray  # noqa: PLC0415

            with self.starting.running():
                self._ray = ensure_ray()
                if self._spread:
                    self.hosts = ray_hosts()

    def owner(self) -> DataPlaneClient:
        """Return the owner's client; open the plane first if it is closed, any number of times."""
        if self._owner is None:
            self.prepare()
            try:
                with self.starting.running():
                    self._owner = open_client(self.target, self.config, True)
            except Exception as error:
                if not self._was_open:
                    raise
                due = "the plane to open again in the process that closed it"
                raise ContractViolation(due, error_text(error)) from error
            self._was_open = True
        return self._owner

    def recorded(self, recording: Recording) -> RecordingClient:
        """Return the owner's client, whose calls ``recording`` records."""
        return RecordingClient(self.owner(), recording)

    def actors(self) -> ActorPool:
        """Return the pool of attached clients in separate processes."""
        if self._actors is None:
            self.owner()
            config, timeouts = self.config or self.target.config, self.target.timeouts
            self._actors = ActorPool(self.spec, config, timeouts, self.starting, self.hosts)
        return self._actors

    def renew(self) -> None:
        """Close the plane, or raise a violation; the next ``owner()`` call opens a fresh plane."""
        actors, self._actors = self._actors, None
        owner, self._owner = self._owner, None
        self.took_steps = False
        with self.starting.running():
            if actors is not None:
                actors.close()
            if owner is not None:
                try:
                    with only_exceptions("close"):
                        owner.close()
                except Exception as error:
                    due = "the owner's client to close"
                    raise ContractViolation(due, error_text(error)) from error

    @contextmanager
    def reopened(self, changes: Mapping[str, Any]) -> Iterator[None]:
        """Close the plane, and open it with changes of its configuration for the block."""
        self.renew()
        usual = self.config
        self.config = {**(usual or self.target.config), **changes}
        try:
            yield
        finally:
            self.config = usual
            self.renew()

    def close(self) -> None:
        """Close the plane, and Ray if this session started it."""
        try:
            self.renew()
        finally:
            session, self._ray = self._ray, None
            if session is not None:
                session.close()

    def note_health(self) -> None:
        """Record whether the new plane can do the simplest round trip."""
        self._was_healthy = self._round_trip() == ""

    def lost_health(self) -> str:
        """Return why a plane that was healthy when new fails a round trip; "" if it works."""
        return self._round_trip() if self._was_healthy else ""

    def unwritten(self) -> str:
        """Return which methods are to be written, if no check can run without them; else ""."""
        if self._was_healthy:
            return ""
        client = self.owner()
        found = unwritten_methods(client, self.target.timeouts.operation)
        return message(client, found) if found.keys() & set(NEEDED) else ""

    def remarks_on_types(self) -> list[str]:
        """Return remarks on unusual types that the client returns; none if the round trip fails."""
        client = self.owner()
        try:
            look = BackgroundCall(lambda: remarks_on_types(client), "a preflight")
            remarks: list[str] = look.result(self.target.timeouts.operation)
        except Exception:  # noqa: BLE001 - a plane may raise anything; the checks judge it
            return []
        return remarks

    def _round_trip(self) -> str:
        client = self.owner()

        def trip() -> None:
            with round_trip(client):
                pass

        return failure_of(trip, self.target.timeouts.operation)


def failure_of(call: Callable[[], Any], timeout_s: float) -> str:
    """Return how ``call`` failed, in one line; "" if it returned in time."""
    try:
        BackgroundCall(call, "a round trip").result(timeout_s)
    except ContractViolation as late:
        return str(late)
    except Exception as error:  # noqa: BLE001 - a plane may raise anything
        return error_text(error)
    return ""
