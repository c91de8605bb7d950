"""Each check is in the file of its requirement's section and has a unique name."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

from rlconform.certify.requirement_index import checks_of_suites

CHECKS = {
    check: requirements
    for check, requirements in checks_of_suites().items()
    if not check.startswith("tests/")
}
#: The checks that have the same body for all requirements: runs of calls, and scenarios.
OF_ALL_SECTIONS = (
    "unit/properties/test_long_runs.py",
    "unit/properties/test_sequences.py",
    "unit/interplay/test_steps.py",
    "functional/interplay/test_interplay.py",
)


def test_a_check_is_in_the_file_of_its_section() -> None:
    strays = {
        check: sorted(requirements)
        for check, requirements in CHECKS.items()
        if not check.startswith(OF_ALL_SECTIONS)
        and {section_of(id_) for id_ in requirements} != {section_in_the_name(check)}
    }
    assert strays == {}


def section_of(requirement_id: str) -> str:
    return requirement_id.partition("-")[0].lower()


def section_in_the_name(check: str) -> str:
    """``claim`` for ``unit/contract/test_claim_blocking.py::test_...``."""
    return PurePosixPath(check.partition("::")[0]).stem.split("_")[1]


def test_files_and_checks_have_names_of_their_own() -> None:
    """A report, a traceback or ``-k`` names the file or the function without its folder."""
    files = Counter(PurePosixPath(path).name for path in {c.partition("::")[0] for c in CHECKS})
    functions = Counter(check.rpartition("::")[2] for check in CHECKS)
    assert [name for name, count in (files + functions).items() if count > 1] == []
