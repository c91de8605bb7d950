"""The body of the checks of scenarios, which differ only in the requirement in their mark."""

from __future__ import annotations

import warnings

import pytest

from rlconform.certify.assertions.expect import FewerExamples
from rlconform.certify.interplay.matrix import InterplayMatrix
from rlconform.certify.interplay.processes import Processes
from rlconform.certify.plugin.check_result import RECORDING
from rlconform.certify.plugin.enough_shown import enough_of
from rlconform.certify.plugin.plane_session import PlaneSession

#: The matrices of a session, by target and seed: the checks of a folder share one.
Matrices = dict[str, InterplayMatrix]


class FailedScenario(AssertionError):
    """A scenario in which the plane broke the contract."""


def check_scenarios(
    request: pytest.FixtureRequest,
    matrices: Matrices,
    processes: Processes,
    patience_s: float,
    *,
    alone: bool = False,
) -> None:
    """Look for a scenario that breaks the requirement in the mark of the check.

    ``patience_s``: seconds that the check may take; the first one runs the scenarios of all.

    Raises:
        FailedScenario: The smallest such scenario; its calls are the check's evidence.
    """
    plane: PlaneSession = request.getfixturevalue("plane")
    seed, option = request.config.getoption("--rlconform-seed"), request.config.getoption
    requirement = request.node.get_closest_marker("requirement").args[0]
    matrix = matrices.setdefault(
        f"{plane.spec} {seed}",
        InterplayMatrix(
            seed,
            option("--rlconform-effort"),
            groups=plane.target.declares("group_claims") is True,
            objects=plane.target.declares("objects") is True,
            check_s=option("--rlconform-check-timeout") or patience_s,
            alone=alone,
        ),
    )
    enough = enough_of(request.config).get(requirement)
    failure = matrix.failure_of(requirement, processes, enough)
    if matrix.cut_short:
        text = f"time for {matrix.judged} scenarios only"
        warnings.warn(text, FewerExamples, stacklevel=2)
    if failure is not None:
        request.node.stash[RECORDING] = failure.report.calls
        steps = failure.scenario.describe()
        raise FailedScenario(
            f"{failure.report.text} (found with --seed {seed}: {steps})"
        ) from failure.report.error
    if not matrix.judged:
        pytest.skip("no scenario ran to its end; other checks judge why")
