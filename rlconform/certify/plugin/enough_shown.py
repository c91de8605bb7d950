"""``EnoughShown``: the hooks that pass over the checks of a requirement once one has shown enough.

CertifyPlugin ── each result ──▶ EnoughShown      pytest ── next check ──▶ passed over, or run
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from rlconform.certify.isolation.shown import Shown


def enough_of(config: pytest.Config) -> Mapping[str, str]:
    """Return which failure of each requirement is enough, as ``CertifyOptions.enough``."""
    enough: dict[str, str] = json.loads(config.getoption("--rlconform-enough"))
    return enough


class EnoughShown:
    """The hooks of a run that needs no more than one telling failure of each requirement."""

    def __init__(self, config: pytest.Config) -> None:
        self.shown = Shown(enough_of(config))

    def passes_over(self, item: pytest.Item) -> bool:
        """Whether the check need not run, as another one of its requirement has shown enough."""
        mark = item.get_closest_marker("requirement")
        return mark is not None and mark.args[0] in self.shown.requirements

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        """Pass over the check: only end the fixtures that were kept for it and not for the next.

        Test processes run without pytest's logging plugin, which expects a check that was set up.
        """
        if not self.passes_over(item):
            return None
        item.ihook.pytest_runtest_teardown(item=item, nextitem=nextitem)
        return True
