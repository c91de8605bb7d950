"""``Processes``: the clients of a scenario's processes.

check ──▶ clients[0] ──▶ the owner's client
    ────▶ clients[1], clients[2] ──▶ two actors, each with an attached client
    ────▶ clients[3] ──▶ an actor whose client joins late or leaves: the guest
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlconform.certify.interplay.scenario import GUEST
from rlconform.certify.recording.recorder import Recording, RecordingClient
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

    def clear(self) -> str:
        """Drop all rows and attach the guest if it has left; return why rows stay, or ""."""
        made, self._made = self._made, []
        why = ""
        for part in made:
            try:
                if part.ids:
                    part.clear(sorted(part.ids))
            except Exception as error:  # noqa: BLE001 - a plane may raise anything; CLEAR-02 judges it
                why = f"{type(error).__name__}: {error}"
        if self._guest_left:
            self.guest_attaches()
        return why
