"""``LoggedPlane`` and ``report_ended``: for one's own entry script of a NeMo-RL run.

actor_args, _ = setup_single_controller(config, tokenizer)
actor_args.dp_client = LoggedPlane(actor_args.dp_client, events, run)
...  # the run
report_ended(events, run)
"""

from __future__ import annotations

from pathlib import Path

from rlconform.contract import DataPlaneClient
from rlconform.events import EventWriter, LogReader
from rlconform.events.log_file import DefectKind
from rlconform.events.reader import log_files
from rlconform.events.schema import ProcessLost
from rlconform.plane.event_client import EventClient


class LoggedPlane(EventClient):
    """A data plane client that writes its calls, and opens a file of its own where it is unpickled.

    NeMo-RL makes its clients in the driver and sends them to the controller's actor.
    """

    def __init__(self, client: DataPlaneClient, events: str, run: str, role: str = "plane") -> None:
        super().__init__(client, EventWriter(events, run=run, role=role))
        self._arguments = (client, events, run, role)

    def __reduce__(self) -> tuple[type[LoggedPlane], tuple[DataPlaneClient, str, str, str]]:
        return LoggedPlane, self._arguments


def report_ended(events: str | Path, run: str) -> int:
    """Write that the processes that did not close their files are gone; return their number.

    Ray ends actors without notice. Call this in the driver when they have all ended.
    """
    reader = LogReader(log_files([Path(events)]))
    for _ in reader.batches():
        pass
    unclosed = {d.path for d in reader.defects if d.kind is DefectKind.NOT_CLOSED}
    sources = [info.source for info in reader.files if info.path in unclosed]
    with EventWriter(events, run=run, role="driver") as writer:
        for source in sources:
            if source is not None:
                writer.write(ProcessLost(lost=source, reason="its actor has ended"))
    return len(sources)
