"""``Processes``: the clients of a scenario's processes.

check ──▶ clients[0] ──▶ the owner's client
    ────▶ clients[1], clients[2] ──▶ two actors, each with an attached client
    ────▶ clients[3] ──▶ an actor whose client joins late or leaves: the guest
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from rlconform.certify.interplay.scenario import GUEST
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import DataPlaneClient, Timeouts


class Processes:
    """The clients, by number of their process.

    Args:
        clients: The owner's client, two that stay attached, and the guest's.
        timeouts: Those of the target.
        attach_guest: Closes the guest's client and attaches a new one in the same process.
    """

    def __init__(
        self,
        clients: Sequence[RecordingClient],
        timeouts: Timeouts,
        attach_guest: Callable[[], None],
    ) -> None:
        self.clients: list[DataPlaneClient] = list(clients)  # type: ignore[arg-type]
        self.timeouts = timeouts
        self._recorded, self._attach_guest = clients, attach_guest
        self._made: list[PartitionUnderTest] = []
        self._guest_left = False

    @property
    def recording(self) -> Recording:
        """The recording of all calls."""
        return self._recorded[0].recording

    def raised_by_plane(self, error: Exception) -> bool:
        """Whether the plane caused the error, by raising it or by violating the contract."""
        return isinstance(error, AssertionError) or self.recording.raised_by_plane(error)

    def partition(self, name: str) -> PartitionUnderTest:
        """Return a partition, whose rows ``clear`` drops."""
        part = PartitionUnderTest(self.clients[0], name, self.timeouts)
        self._made.append(part)
        return part

    def guest_attaches(self) -> None:
        """Attach a new client in the guest's process."""
        self._attach_guest()
        self._guest_left = False

    def guest_leaves(self) -> None:
        """Close the guest's client."""
        self._guest_left = True
        self.clients[GUEST].close()

    def clear(self) -> None:
        """Drop all rows, and attach the guest if it has left."""
        made, self._made = self._made, []
        for part in made:
            with suppress(Exception):  # a plane may raise anything; CLEAR-02 judges it
                if part.ids:
                    part.clear(sorted(part.ids))
        if self._guest_left:
            with suppress(Exception):  # ``work`` finds out
                self.guest_attaches()

    def work(self) -> bool:
        """Return whether each process still reads what the owner puts."""
        part = self.partition(f"w-{uuid.uuid4().hex[:8]}")
        try:
            part.register()
            part.put_labeled(["a"])
            for client in self.clients:
                part.via(client).expect_labeled(["a"])
        except Exception:  # noqa: BLE001 - a plane may raise anything
            return False
        finally:
            self.clear()
        return True
