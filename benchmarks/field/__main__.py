"""Certifies the planes of ``planes.toml`` one after another, and writes ``docs/field.md``.

    python -m benchmarks.field --nemo-rl path/to/RL
    python -m benchmarks.field --only transfer_queue_0.1.9 --again

    planes.toml ──▶ plane by plane: rlconform certify, a process ──▶ rlconform-field/NAME/report
                                                       all reports that are there ──▶ docs/field.md

It can be stopped at any time and goes on with the planes that have no report yet. A plane that
can't be installed or does not start is a row of the page with its reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.field.certified import ROOT, certified, kept
from benchmarks.field.page import field_page, in_one_line
from benchmarks.field.planes import chosen, load_planes
from rlconform.contract import LEVELS


def main(
    nemo_rl: Annotated[Path | None, typer.Option(help="A checkout of NeMo-RL.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Certify this plane; repeatable.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Certify also what has a report.")] = False,
    level: Annotated[str | None, typer.Option(help="Certify at this level instead.")] = None,
    folder: Annotated[Path, typer.Option(help="Keeps reports.")] = Path("rlconform-field"),
    page: Annotated[Path, typer.Option(help="The page.")] = ROOT / "docs" / "field.md",
    timeout: Annotated[float, typer.Option(help="Seconds for one plane.", min=1)] = 3600,
) -> None:
    """Certify what is asked for and has no report yet; write the page of all that was certified."""
    if nemo_rl is not None and not (nemo_rl / "nemo_rl" / "data_plane").is_dir():
        raise typer.BadParameter(f"expected a checkout with nemo_rl/data_plane; got {nemo_rl}")
    if level is not None and level not in LEVELS:
        raise typer.BadParameter(f"expected one of {', '.join(LEVELS)}; got {level}")
    planes = load_planes()
    try:
        wanted = chosen(planes, only or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--only") from error
    checkouts = {} if nemo_rl is None else {"nemo-rl": nemo_rl}
    for plane in wanted:
        asked = plane.model_copy(update={"level": level}) if level else plane
        if plane.target and (again or kept(asked, folder).report is None):
            print(f"{plane.name}: certifies {plane.target} at level {asked.level}", flush=True)
            result = certified(asked, folder, checkouts, timeout)
            print(f"{plane.name}: {in_one_line(result)}", flush=True)
    results = [kept(plane, folder) for plane in planes]
    page.write_text(field_page(results), "utf-8")
    print(f"written: {page}")


if __name__ == "__main__":
    typer.run(main)
