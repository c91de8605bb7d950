"""``certify``: runs the checks that the options select, and makes a certificate.

Runner ──RunRecord──▶ results by requirement ──▶ root causes ──▶ waivers ──▶ verdict
                                                                                │
report.json, junit.xml, reproducers/, histories/ ◀── Certificate.write ◀────────┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rlconform.certify.isolation.runner import Listener, Runner
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.json_report import build_report, folder_to_write, write_report
from rlconform.certify.report.root_causes import RootCause, root_causes, with_followers
from rlconform.certify.report.verdict import Conclusion, requirement_results, verdict_of
from rlconform.certify.report.waivers import Waiver, apply_waivers
from rlconform.certify.results import RequirementResult, RunRecord
from rlconform.contract import ConfigError, Requirement, load_requirements


@dataclass(frozen=True)
class Certificate:
    """The verdict on a plane, and the results that it is based on."""

    options: CertifyOptions
    run: RunRecord  # the results of the checks
    requirements: Mapping[str, Requirement]  # the contract
    results: list[RequirementResult]  # of every requirement that the level counts
    causes: list[RootCause]  # the probable defects, those that explain most first
    conclusion: Conclusion  # the verdict
    is_whole: bool  # whether every check of the level has run; otherwise no plane is certified

    def write(self, out: Path, force: bool = False) -> Path:
        """Write the report below the folder that ``folder_to_write`` selects; return that folder.

        Raises:
            ConfigError: It can't be written.
        """
        report = build_report(
            self.options, self.run, self.requirements, self.results, self.conclusion, self.causes
        )
        folder = folder_to_write(out, report["header"], self.is_whole, force)
        try:
            write_report(folder, report, self.run, self.requirements, self.results)
        except OSError as error:
            raise ConfigError(f"--out {folder}: no report was written: {error}") from error
        return folder


def certify(
    options: CertifyOptions,
    *,
    waivers: Sequence[Waiver] = (),
    allow_deviations: bool = False,
    listener: Listener | None = None,
) -> Certificate:
    """Run the checks and judge the plane; ``listener`` is called with every event of the run.

    Raises:
        PlaneDidNotStart: The plane can't be opened, or pytest can't use the options.
        KeyboardInterrupt: Interrupted before the first check.
    """
    run = Runner(options, listener).certify()
    requirements = load_requirements()
    level = run.target["level"]
    if not any(row.published and row.profile == level for row in requirements.values()):
        run.notes.append(f"no requirement is published yet that needs level {level}")
    results = with_followers(
        requirement_results(requirements, run.plan, run.results, level, run.target["capabilities"]),
        run.results.values(),
    )
    musts = [row.id for row in requirements.values() if row.level == "MUST"]
    causes = root_causes(results, run.results.values(), musts)
    results, problems = apply_waivers(results, waivers, datetime.now(UTC).date())
    is_whole = run.complete and not options.select
    conclusion = verdict_of(
        requirements,
        results,
        complete=is_whole,
        problems=problems,
        allow_deviations=allow_deviations,
    )
    return Certificate(options, run, requirements, results, causes, conclusion, is_whole)
