"""The event log of a run: which group was dispatched, trained on or dropped, when, and by whom.

Any framework writes it with :class:`EventWriter`; ``rlconform check-run`` judges it. The package
imports neither torch nor Ray.
"""

from rlconform.events.reader import LogDefect, LogFileInfo, LogReader
from rlconform.events.writer import EventWriter

__all__ = ["EventWriter", "LogDefect", "LogFileInfo", "LogReader"]
