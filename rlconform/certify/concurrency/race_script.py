"""Makes a script of a race: plain client calls in threads, which a vendor can run by hand.

The script opens the plane as its owner and attaches a second client in another process. It prints
the defect; on a correct plane it prints nothing. If it finds nothing, it runs the check.
"""

from __future__ import annotations

from pathlib import Path

from rlconform.certify.reproduce.render import ATTACH, Origin, header

_FOLDER = Path(__file__).with_name("reproducers")
#: Names of the races: the modules of ``reproducers``.
RACES = sorted(file.stem for file in _FOLDER.glob("*.py") if file.stem not in {"__init__", "race"})
_FUTURE = "from __future__ import annotations\n"

_FOOTER = """

client = plane.open()
{other}race = Race(plane, client, other, seconds={seconds})
run(race)
race.finish(EXPECTED)
"""


def race_script(origin: Origin, race: str, evidence: str, seconds: float = 10) -> str:
    """A script that runs the race for ``seconds``, and then the check if it found nothing."""
    _, _, body = (_FOLDER / f"{race}.py").read_text("utf-8").partition(_FUTURE)
    if "race.other" not in body:
        other = "other = client\n"
    elif origin.check.startswith("unit/"):
        other = "other = client  # shared by threads\n"
    else:
        other = f"other = {ATTACH}\n"
    return (
        header(origin, evidence, races=True) + body + _FOOTER.format(other=other, seconds=seconds)
    )
