"""pytest passes over the checks of a requirement that another one has shown, and over no others."""

from __future__ import annotations

import json

import pytest

from rlconform.certify.plugin import options
from rlconform.certify.plugin.enough_shown import EnoughShown
from rlconform.certify.results import CheckResult, Outcome

pytest_plugins = ("pytester",)

CHECKS = {
    "test_first": """
        import pytest
        from rlconform.certify.plugin.markers import requirement

        @pytest.fixture(scope="module")
        def kept():
            print("made")
            yield
            print("ended")

        @requirement("GET-04", scattered=False)
        def test_passes(kept): pass

        @requirement("GET-04", scattered=False)
        def test_fails(kept): assert False, "expected a row; got none"

        @requirement("GET-06", scattered=False)
        def test_of_another(kept): pass

        @requirement("GET-04", scattered=False)
        def test_is_spared(kept): pass
    """,
    "test_second": """
        from rlconform.certify.plugin.markers import requirement

        @requirement("GET-04", scattered=False)
        def test_is_spared_too(): pass

        @requirement("GET-06", scattered=False)
        def test_of_another_file(): pass

        @requirement("GET-04", scattered=False)
        def test_is_spared_last(): pass
    """,
}


class _Checks:
    """A plugin that notes the results, as that of the checks does."""

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "requirement(id): the requirement")
        self.enough = EnoughShown(config)
        config.pluginmanager.register(self.enough)
        self.ran: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> object:  # a generator, which pytest goes through
        report = yield
        if call.when == "call":
            self.ran.append(item.name)
            mark = item.get_closest_marker("requirement")
            assert mark is not None
            outcome = Outcome.FAIL if call.excinfo else Outcome.PASS
            said = str(call.excinfo.value) if call.excinfo else ""
            self.enough.shown.note(CheckResult(item.name, mark.args[0], outcome, evidence=said), {})
        return report


def ran(pytester: pytest.Pytester, enough: dict[str, str]) -> list[str]:
    """The checks that run, if this failure of each requirement is enough."""
    pytester.makepyfile(**CHECKS)
    checks = _Checks()
    asked = ["--rlconform-enough", json.dumps(enough), "-s", "-p", "no:logging"]
    done = pytester.inline_run(*asked, plugins=[options, checks])
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    return checks.ran


def test_the_second_check_spares_those_that_come_after(
    pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ran(pytester, {"GET-04": "expected a row"}) == [
        "test_passes", "test_fails", "test_of_another", "test_of_another_file",
    ]  # fmt: skip
    printed = capfd.readouterr().out
    assert printed.count("made") == printed.count("ended") == 1
    assert "INTERNALERROR" not in printed


@pytest.mark.parametrize("enough", [{}, {"GET-04": "a reason that none gives"}])
def test_another_failure_spares_none(pytester: pytest.Pytester, enough: dict[str, str]) -> None:
    assert len(ran(pytester, enough)) == 7
