"""``PropertyRunner`` runs a property as a check: it draws seeded examples within a time limit.

    for_all ──▶ PropertyRunner.run ──▶ Hypothesis: examples, until one fails; then smaller ones
                      ▲                         │ each begins with an empty recording
                      └─ last failing example ──┘ and fresh partitions

It reports the failure of the last failing example, which is the smallest: expected and actual
result, the seed, and the calls of only this example.
"""

from __future__ import annotations

import inspect
import math
import random
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from rlconform.certify.assertions.expect import FewerExamples
from rlconform.certify.isolation.scattering_client import ScatteringClient, random_policy
from rlconform.certify.plugin.check_result import RECORDING, CleanUpFailed, check_id, is_scattered
from rlconform.certify.properties.excerpt import FailureReport
from rlconform.certify.properties.hypothesis_isolation import (
    fresh_entropy,
    no_constants_of_modules,
    temporary_hypothesis_home,
)
from rlconform.certify.properties.padded_strategies import PADDED_FIELDS
from rlconform.certify.properties.strategies import FIELDS, OBJECTS
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import Timeouts

#: Fields that the partition of an example registers: all that a strategy puts.
REGISTERED: tuple[str, ...] = (*FIELDS, OBJECTS, *PADDED_FIELDS)

#: Seconds of the plane's own calls after which no further example begins. A slow plane gets fewer
#: examples, but always enough that something is judged.
PLANE_S = 0.8
#: Most seconds for all examples, and for making a failing one smaller. Each is at most a third of
#: the check's timeout.
SEARCH_S = 10.0
SHRINK_S = 10.0

SETTINGS = settings(
    max_examples=25,
    phases=(Phase.generate, Phase.shrink),
    database=None,  # nothing is kept between runs: only the plane and the seed decide
    deadline=None,  # a call may take as long as the target's own timeouts allow
    derandomize=False,
    report_multiple_bugs=False,
    print_blob=False,
    verbosity=Verbosity.quiet,
    backend="hypothesis",
    suppress_health_check=(
        HealthCheck.too_slow,  # the machine may be loaded or the plane slow
        HealthCheck.function_scoped_fixture,  # ``begin`` gives each example its own partitions
        HealthCheck.nested_given,  # rlconform's tests run properties inside tests
    ),
)

Check = Callable[..., None]

#: What the same seed repeats: the failure, or only the calls if the plane's answers vary.
REPEATS = "which repeats it"
NOT_ALWAYS = "which repeats the calls; the plane does not answer them the same every time"


class FailedExample(AssertionError):
    """An example for which the plane broke the contract."""


class OutOfTime(KeyboardInterrupt):
    """Ends the search for lack of time; a KeyboardInterrupt, as Hypothesis catches other errors."""


class PropertyRunner:
    """Runs the examples of one check on one plane.

    Args:
        client, timeouts: The owner's client, and the target's timeouts.
        seed: Seeds the examples, together with ``stream``.
        stream: Name of the check, so that checks get different examples.
        effort: Share of the usual number of examples, in (0, 1].
        refuses_objects, claims_groups: What the target declares.
    """

    def __init__(
        self,
        client: RecordingClient,
        timeouts: Timeouts,
        seed: int = 0,
        stream: str = "",
        effort: float = 1.0,
        refuses_objects: bool = False,
        claims_groups: bool = False,
    ) -> None:
        self.timeouts = timeouts
        self.refuses_objects, self.claims_groups = refuses_objects, claims_groups
        self.search_s = min(SEARCH_S, timeouts.check / 3)  # for the examples of a slow plane
        self.plane_s = PLANE_S  # of the plane's calls, after which no further example begins
        self.failure: FailureReport | None = None
        self.cut_short = False  # time ran out before all examples, and no example failed
        self.client = client
        self.seed, self._stream, self.effort = seed, stream, effort
        self._begun = 0
        self._plane_began = client.recording.plane_seconds
        self._search_began = math.inf  # set by the first example
        self._deadline = math.inf
        self._partitions: list[PartitionUnderTest] = []
        self._clear_error = ""  # why rows of an example could not be cleared

    def begin(self, *, enough: bool = True) -> None:
        """Begin an example: drop the rows and recorded calls of the previous one.

        ``enough``: the examples already run suffice for a slow plane. Without it, the search may
        take a third of the check's timeout.
        """
        if not self._begun:
            self._search_began = time.monotonic()
        if self.failure is None:
            longest = max(self.search_s, self.timeouts.check / 3)
            self._deadline = self._search_began + (self.search_s if enough else longest)
            spent = self.client.recording.plane_seconds - self._plane_began
            if enough and spent > self.plane_s:
                raise OutOfTime
        self.check_time()
        self._clear_rows()
        self.client.recording.restart(writes_source=self.failure is not None)
        fresh_entropy()
        self._begun += 1

    def check_time(self) -> None:
        """Raise ``OutOfTime`` if the current example may not continue."""
        if time.monotonic() > self._deadline:
            raise OutOfTime

    def new_partition(self, name: str = "") -> PartitionUnderTest:
        """Return a new, unregistered partition; its rows are cleared before the next example."""
        name = name or f"p-{uuid.uuid4().hex[:8]}"
        part = PartitionUnderTest(self.client, name, self.timeouts)  # type: ignore[arg-type]
        self._partitions.append(part)
        return part

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record an error in the block as a failure if the plane caused it; let all errors pass."""
        try:
            yield
        except Exception as error:
            if self.raised_by_plane(error):
                if self.failure is None:
                    self._deadline = time.monotonic() + min(SHRINK_S, self.timeouts.check / 3)
                self.failure = self.failure_of(error)
            raise

    def raised_by_plane(self, error: Exception) -> bool:
        """Whether the plane caused the error, by raising it or by violating the contract."""
        return isinstance(error, AssertionError) or self.client.recording.raised_by_plane(error)

    def failure_of(self, error: Exception) -> FailureReport:
        """Return a report of the error and the calls that led to it."""
        return FailureReport.of(error, self.client.recording)

    @property
    def _scattering(self) -> ScatteringClient | None:
        client: object = self.client
        return client if isinstance(client, ScatteringClient) else None

    @property
    def of_several_processes(self) -> bool:
        """Whether several processes make the calls."""
        return self._scattering is not None

    @property
    def place(self) -> int:
        """The number of the process that made the last call; 0 if one makes all."""
        return self._scattering.last_place if self._scattering else 0

    def scatter(self, rng: random.Random) -> None:
        """If several processes make the calls, draw anew which makes which."""
        if self._scattering:
            self._scattering.follow(random_policy(rng))

    def reseed(self, seed: str) -> None:
        """If several processes make the calls, let the seed decide which make the next ones."""
        if self._scattering:
            self._scattering.reseed(seed)

    @property
    def plane_seconds(self) -> float:
        """Seconds of the plane's own calls so far."""
        return self.client.recording.plane_seconds

    @property
    def stream_seed(self) -> str:
        """What seeds the examples: the seed of the run, and the check's name."""
        return f"{self.seed} {self._stream}"

    def seeded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function or state machine with its examples seeded."""
        return seeded(self.stream_seed)(function)

    def with_effort(self, usual: settings) -> settings:
        """Return the settings with the effort's share of the examples."""
        return settings(usual, max_examples=max(1, round(usual.max_examples * self.effort)))

    def run(self, search: Callable[[], None]) -> None:
        """Run the examples of ``search``; raise ``FailedExample`` if the plane failed on one."""
        how = REPEATS
        try:
            with temporary_hypothesis_home(), no_constants_of_modules():
                search()
        except OutOfTime:
            self.cut_short = self.failure is None
        except Flaky:
            if self.failure is None:
                raise
            how = NOT_ALWAYS
        except Exception as error:
            if self.failure is None or error is not self.failure.error:
                raise
        finally:
            self._clear_rows()
            self._warn()
        if self.failure is not None:
            self.fail(self.failure, how)

    def fail(self, failure: FailureReport, how: str) -> NoReturn:
        """Raise ``FailedExample`` for this failure; ``how`` says what the seed repeats."""
        self.failure = failure
        raise FailedExample(
            f"{failure.text} (found with --seed {self.seed}, {how})"
        ) from failure.error

    def _clear_rows(self) -> None:
        """Clear all rows; if that fails, only warn later, as CLEAR-02 and CLEAR-05 judge clears."""
        partitions, self._partitions = self._partitions, []
        for part in partitions:
            try:
                if part.ids:
                    part.clear(sorted(part.ids))
            except Exception as error:  # noqa: BLE001 - a plane may raise anything, see above
                self._clear_error = f"{type(error).__name__}: {shorten(str(error))}"

    def _warn(self) -> None:
        if self._clear_error:
            text = f"rows stay behind, clear_samples raised {self._clear_error}"
            warnings.warn(text, CleanUpFailed, stacklevel=3)
        if self.cut_short:
            warnings.warn(f"time for {self._begun} examples only", FewerExamples, stacklevel=3)


#: Share of the examples if several processes make a check's calls, which take twice as long.
SCATTERED_SHARE = 0.3


@contextmanager
def property_runner(request: pytest.FixtureRequest) -> Iterator[PropertyRunner]:
    """Yield a check's runner; keep a failing example's calls as evidence and for the reproducer."""
    share = SCATTERED_SHARE if is_scattered(request.node) else 1.0
    runner = PropertyRunner(
        request.getfixturevalue("client"),
        request.getfixturevalue("target").timeouts,
        request.config.getoption("--rlconform-seed", 0),
        check_id(request.node),
        request.config.getoption("--rlconform-effort", 1.0) * share,
        request.getfixturevalue("target").declares("objects") is False,
        request.getfixturevalue("target").declares("group_claims") is True,
    )
    try:
        yield runner
    finally:
        if runner.failure is not None:
            request.node.stash[RECORDING] = runner.failure.calls


def for_all(**strategies: SearchStrategy[Any]) -> Callable[[Check], Check]:
    """Run a check on drawn values of the parameters named here: it must hold for all values.

        @requirement("PUT-04")
        @for_all(batch=batches(dense_columns))
        def test_dense_fields_come_back(part: PartitionUnderTest, batch: Batch) -> None: ...

    The check's parameter ``part`` is a fresh, registered partition for each example. Any other
    parameter is a fixture or comes from ``parametrize``.
    """

    def decorate(check: Check) -> Check:
        named = list(inspect.signature(check).parameters)
        fixture_names = [name for name in named if name not in {"part", *strategies}]

        def run(request: pytest.FixtureRequest, **fixtures: Any) -> None:
            @given(**strategies)
            def example(**drawn: Any) -> None:
                runner.begin()
                with runner.watching():
                    if "part" in named:
                        drawn["part"] = runner.new_partition()
                        drawn["part"].register(fields=REGISTERED)
                    check(**fixtures, **drawn)

            with property_runner(request) as runner:
                runner.run(runner.seeded(runner.with_effort(SETTINGS)(example)))

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        update_wrapper(run, check)  # pytest shows the check
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind) for name in ["request", *fixture_names]]
        )
        return run

    return decorate
