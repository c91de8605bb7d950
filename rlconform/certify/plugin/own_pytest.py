"""A vendor's own pytest run with ``--rlconform-target``: which files it collects, and how.

The checks are files of this package, outside of the vendor's project. Their ids are a report's,
``unit/contract/test_get.py::test_order``, wherever the package is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlconform._resources import resource_dir
from rlconform.certify.plugin.asked_checks import AskedChecks
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.shorten import error_text
from rlconform.contract import ConfigError


class OwnPytest:
    """The hooks of such a run, beside those of the checks. ``session`` resolves the target."""

    def __init__(self, config: pytest.Config, session: Callable[[], PlaneSession]) -> None:
        """Collect the checks unless paths were named, and keep the project's settings off them.

        Raises:
            pytest.UsageError: The target can't be found; the message says how to name it.
        """
        try:
            session()
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from error
        self._session, self._is_open = session, False
        suites = resource_dir("suites")
        self._on_the_way = {suites, *suites.parents}
        given = config.args_source is pytest.Config.ArgsSource.ARGS
        self._asked = AskedChecks(config.args if given else [], suites)
        wants_checks = self._asked or not given
        config.args[:] = [*self._asked.others, *([str(suites)] if wants_checks else [])]
        config.option.importmode = "importlib"  # checks of two levels may be in files of one name
        # It says that a SHOULD is broken; a project may turn every warning into an error.
        warned = "default::rlconform.certify.assertions.expect.ShouldViolation"
        config.addinivalue_line("filterwarnings", warned)

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Enter the folders that lead to the checks, such as ``.venv``; leave others out."""
        if self._asked.leaves_out(collection_path):
            return True
        return False if collection_path in self._on_the_way else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect the checks of a file that were not asked for."""
        if left_out := [item for item in items if not self._asked.selects(item)]:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if self._asked.selects(item)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Open the plane before the first check; end the run with one message if it fails."""
        if self._is_open or item.get_closest_marker("requirement") is None:
            return
        session = self._session()
        try:
            session.owner()
        except Exception as error:  # noqa: BLE001 - a plane may fail to start in any way
            why = str(error) if isinstance(error, ConfigError) else error_text(error)
            pytest.exit(f"{session.spec} does not open: {why}", pytest.ExitCode.USAGE_ERROR)
        session.note_health()
        if unwritten := session.unwritten():
            pytest.exit(f"{session.spec}: {unwritten}", pytest.ExitCode.USAGE_ERROR)
        self._is_open = True
