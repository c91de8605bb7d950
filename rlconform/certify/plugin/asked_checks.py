"""``AskedChecks``: the paths and ids of checks on pytest's command line.

pytest names a test by its path below the folder that was asked for. So that a check has one id
however it is asked for, pytest collects the whole folder ``suites``, and what was not asked for is
left out: ``unit/contract/test_get.py::test_order`` in every run, as in a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rlconform.certify.plugin.check_result import check_id


class AskedChecks:
    """The files and folders below ``suites`` that arguments name, and ids of checks in them."""

    def __init__(self, arguments: Sequence[str], suites: Path) -> None:
        self._suites = suites
        self._names: dict[Path, set[str]] = {}  # by path; "" for all of its checks
        self.others: list[str] = []  # arguments that name something else
        for argument in arguments:
            path, _, name = argument.partition("::")
            asked = Path(path).absolute() if Path(path).exists() else suites / path
            if asked.exists() and asked.is_relative_to(suites):
                self._names.setdefault(asked, set()).add(name)
            else:
                self.others.append(argument)

    def __bool__(self) -> bool:
        return bool(self._names)

    def leaves_out(self, path: Path) -> bool:
        """Whether no check of this file or folder was asked for."""
        if not self._names or self._suites not in path.parents:
            return False
        return not any(
            path == asked or asked in path.parents or path in asked.parents for asked in self._names
        )

    def selects(self, item: pytest.Item) -> bool:
        """Whether this test of a file that was asked for was; tests of other folders always are."""
        names = self._names.get(item.path, {""})
        own = check_id(item).partition("::")[2]
        return "" in names or any(own == name or own.startswith(f"{name}[") for name in names)
