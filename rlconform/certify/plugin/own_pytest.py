"""A vendor's own pytest run with ``--rlconform-target``: which files it collects, and how.

The checks are files of this package, outside of the vendor's project. They are named as in a report,
``unit/contract/test_get.py::test_order``, wherever the package is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlconform._resources import resource_dir
from rlconform.certify.plugin.check_result import check_id
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
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            config.args[:] = [str(suites)]
        config.args[:] = [_below_suites(each, suites) for each in config.args]
        config.option.importmode = "importlib"  # checks of two levels may be in files of one name
        # It says that a SHOULD is broken; a project may turn every warning into an error.
        warned = "default::rlconform.certify.assertions.expect.ShouldViolation"
        config.addinivalue_line("filterwarnings", warned)

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Let pytest enter the folders that lead to the checks, such as the project's ``.venv``."""
        return False if collection_path in self._on_the_way else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Name a check by its path below ``suites/``; pytest's name depends on what was asked."""
        if item.get_closest_marker("requirement") is not None:
            item._nodeid = check_id(item)

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


def _below_suites(argument: str, suites: Path) -> str:
    """Return the path, or that below ``suites`` if the argument is the id of a check there."""
    path, colons, name = argument.partition("::")
    known = not Path(path).exists() and (suites / path).exists()
    return f"{suites / path}{colons}{name}" if known else argument
