"""``CheckPlan``: which of the collected checks a pytest run makes, and in which order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlconform.certify.isolation import events
from rlconform.certify.isolation.events import EventPipe
from rlconform.certify.isolation.shares import Share
from rlconform.certify.plugin.blocks import drawn_cases
from rlconform.certify.plugin.check_result import check_id, planned_check
from rlconform.certify.plugin.order import ordered
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.results import NOT_SELECTED, PlannedCheck


class CheckPlan:
    """The hooks of a pytest run's collection; ``session`` returns the session of the plane."""

    def __init__(
        self, config: pytest.Config, pipe: EventPipe, session: Callable[[], PlaneSession]
    ) -> None:
        self._pipe, self._session, self._option = pipe, session, config.getoption
        only = config.getoption("--rlconform-only")
        self._only = set(Path(only).read_text("utf-8").split("\n")) if only else None
        self._share = Share.parse(self._option("--rlconform-share"))
        asked: str = config.getoption("--rlconform-requirements")
        self._requirements = set(filter(None, asked.split(",")))
        self._plan: list[PlannedCheck] = []
        files = {Path(each) for each in config.args if each.endswith(".py")}
        self._files = files if pipe.watched and len(files) == len(config.args) else set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Ignore other files than the runner asked for; pytest makes objects of a whole folder."""
        if self._files and collection_path.suffix == ".py":
            return collection_path not in self._files or None  # None lets pytest decide
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Plan and order the checks; deselect those that this level and target leave out."""
        kept: list[pytest.Item] = []
        dropped: list[pytest.Item] = []
        for item in drawn_cases(items):
            mark = item.get_closest_marker("requirement")
            check = None
            if mark and (not self._requirements or mark.args[0] in self._requirements):
                check = planned_check(item, mark, self._session(), self._option("rlconform_races"))
                self._plan.append(check)
            wanted = not self._pipe.watched if check is None else not check.left_out
            if self._only is not None and (check is None or check.id not in self._only):
                wanted = False
            (kept if wanted else dropped).append(item)
        if dropped:
            config.hook.pytest_deselected(items=dropped)
        first = json.loads(self._option("--rlconform-first"))
        items[:] = ordered(kept, self._option("rlconform_telling_first"), first, self._share)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Report the plan, including the checks that ``-k`` deselected."""
        selected = {check_id(item) for item in session.items}
        plan = [
            one if one.id in selected else replace(one, left_out=one.left_out or NOT_SELECTED)
            for one in self._plan
        ]
        self._pipe.send(events.ChecksCollected(plan))
        if self._share.count > 1:
            mine = self._share.of([check.id for check in plan if not check.left_out])
            session.items[:] = [item for item in session.items if check_id(item) in mine]
        if not selected & {check.id for check in plan}:
            return
        plane = self._session()
        if plane.target.isolation == "process":
            if not self._pipe.watched and len(session.items) > 1:
                raise pytest.UsageError(
                    f"{plane.target.name} needs a process for each check: run `rlconform "
                    f"certify {plane.spec}`, or one check at a time"
                )
            session.items[:] = session.items[:1]  # the runner starts a process for each of the rest
