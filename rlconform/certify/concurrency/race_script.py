"""Write a race as a script of plain client calls in threads, which a vendor can run by hand.

The script opens the plane as its owner and attaches a second client in another process. It prints
the defect; on a correct plane it prints nothing. If it finds nothing, it runs the check.
"""

from __future__ import annotations

import inspect
import re

from rlconform.certify.concurrency import races
from rlconform.certify.reproduce.render import ATTACH, Origin, header

#: The races by name.
RACES = {
    name: race
    for name, race in inspect.getmembers(races, inspect.isfunction)
    if race.__module__ == races.__name__
}


def race_script(origin: Origin, race: str, evidence: str, seconds: float = 10) -> str:
    """Return a script that runs the race for ``seconds``, then the check if it found nothing."""
    body = inspect.getsource(RACES[race])
    if "race.other" not in body:
        other = "client"
    elif origin.check.startswith("unit/"):
        other = "client  # shared by threads"
    else:
        other = ATTACH
    head = f"{header(origin, evidence, races=True)}\n{_imports(body)}"
    opened = f"client = plane.open()\nother = {other}"
    return f"{head}\n\n\n{body}\n\n{opened}\n{race}(Race(plane, client, other, {seconds}))\n"


def _imports(body: str) -> str:
    """Return the imports of ``races`` that the body uses, one per line."""
    used = set(re.findall(r"\w+", body))
    imports = re.findall(r"^(?:from .*)?import .*", inspect.getsource(races), re.MULTILINE)
    return "\n".join(line for line in imports if used & {*line.partition("import ")[2].split(", ")})
