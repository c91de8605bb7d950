"""How a property runs as a check: examples from a seed, within the check's time.

    for_all ──▶ Explorer.run ──▶ Hypothesis: example, example, ... one fails, smaller ones, the end
                      ▲                         │ each begins with an empty recording
                      └── the last that failed ─┘ and fresh partitions

What is reported is the last example that failed, which is the smallest: what was expected and what
came, the seed, and the calls of that example alone.
"""

from __future__ import annotations

import inspect
import math
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from rlconform.certify.plugin.check_result import RECORDING, CleanUpFailed, FewerExamples, check_id
from rlconform.certify.properties.hypothesis_isolation import fresh_entropy, in_fresh_process
from rlconform.certify.properties.padded_strategies import PADDED_FIELDS
from rlconform.certify.properties.strategies import FIELDS, OBJECTS
from rlconform.certify.recording.recorder import Recording, RecordingClient
from rlconform.certify.recording.text import shorten
from rlconform.certify.reproduce.expectations import ScriptExpectation
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import Timeouts

#: What the partition of an example registers: every field that a strategy puts.
REGISTERED: tuple[str, ...] = (*FIELDS, OBJECTS, *PADDED_FIELDS)

#: Examples of a property. Few of them are alike, as Hypothesis leaves out what it has seen.
EXAMPLES = 25

#: Seconds of the plane's own calls after which no further example begins: a slow plane gets fewer,
#: but always enough that something could be judged.
PLANE_S = 0.8
#: Seconds in which all examples end, and in which a failing one is made smaller, on however slow a
#: machine. Two thirds of the check's own timeout are the most that both may take.
SEARCH_S = 10.0
SHRINK_S = 10.0

SETTINGS = settings(
    max_examples=EXAMPLES,
    phases=(Phase.generate, Phase.shrink),
    database=None,  # nothing is kept between runs: a verdict comes from this plane and this seed
    deadline=None,  # a call may take as long as the target's own timeouts allow
    derandomize=False,
    report_multiple_bugs=False,
    print_blob=False,
    verbosity=Verbosity.quiet,
    backend="hypothesis",
    suppress_health_check=(
        HealthCheck.too_slow,  # it is measured on a loaded machine, or beside a slow plane
        HealthCheck.function_scoped_fixture,  # an example gets its own partitions from us
        HealthCheck.nested_given,  # the kit's own tests run properties inside of tests
    ),
)

Check = Callable[..., None]


#: What the seed is worth; and where the plane answers the same calls now so, now otherwise.
REPEATS = "which repeats it"
NOT_ALWAYS = "which repeats the calls; the plane does not answer them the same every time"


class FailedExample(AssertionError):
    """An example for which the plane did not do what the contract asks."""


class OutOfTime(KeyboardInterrupt):
    """No further example may begin. Hypothesis lets only a KeyboardInterrupt pass as it is."""


class Excerpt(Recording):
    """The calls of one example, which stay as they are while other examples are recorded."""

    def __init__(self, recording: Recording, error: Exception) -> None:
        super().__init__()
        self.calls = list(recording.calls)
        self.plane_time = recording.plane_time
        self._lines = recording.lines()
        self._judged = recording.script_expectation(error)
        self._whole = recording

    def lines(self) -> list[str]:
        """The calls in order with what came of each."""
        return list(self._lines)

    def script_expectation(self, error: BaseException) -> ScriptExpectation | None:  # noqa: ARG002 - see below
        """What a script is to expect of these calls; the error that is asked for wraps theirs."""
        return self._judged

    def finish(self, timeout_s: float) -> None:
        """The check is over, and so is the recording that this is taken from."""
        self._whole.finish(timeout_s)


@dataclass(frozen=True)
class FailureReport:
    """What an example that failed showed, and its calls."""

    text: str
    error: Exception
    calls: Excerpt


class PropertyRunner:
    """Examples for one check, over one plane.

    ``run`` explores; what it runs calls ``begin`` for each example, and the client ``watching``.

    Args:
        client: The owner's client.
        timeouts: The target's.
        seed: What the examples come from.
        stream: Name of what explores, so that unlike ones don't see the same examples.
        effort: Share of the usual number of examples, in (0, 1].
    """

    def __init__(
        self,
        client: RecordingClient,
        timeouts: Timeouts,
        seed: int = 0,
        stream: str = "",
        effort: float = 1.0,
    ) -> None:
        self.timeouts = timeouts
        self.failure: FailureReport | None = None
        self.cut_short = False  # time was up before all examples had been seen, and none failed
        self._client = client
        self._seed = seed
        self._stream = stream
        self._effort = effort
        self._begun = 0
        self._plane_began = client.recording.plane_seconds
        self._search_began = math.inf  # with the first example: there is always one
        self._deadline = math.inf
        self._made: list[PartitionUnderTest] = []
        self._left = ""  # why rows of an example could not be cleared

    def begin(self, *, enough: bool = True) -> None:
        """Begin an example: nothing is left of the one before, neither rows nor recorded calls.

        Args:
            enough: Whether the examples so far may do, where the plane is slow. Until they do, the
                search may take a third of the check's own timeout.
        """
        if not self._begun:
            self._search_began = time.monotonic()
        if self.failure is None:
            longest = self.timeouts.check / 3
            self._deadline = self._search_began + (min(SEARCH_S, longest) if enough else longest)
            spent = self._client.recording.plane_seconds - self._plane_began
            if enough and spent > PLANE_S:
                raise OutOfTime
        self.check_time()
        self._tidy()
        self._client.recording.restart()
        fresh_entropy()
        self._begun += 1

    def check_time(self) -> None:
        """Raise ``OutOfTime`` when the example under way may not go on."""
        if time.monotonic() > self._deadline:
            raise OutOfTime

    def new_partition(self, name: str = "p") -> PartitionUnderTest:
        """A fresh partition, not yet registered, whose rows go when the next example begins."""
        part = PartitionUnderTest(self._client, f"{name}-{uuid.uuid4().hex[:8]}", self.timeouts)  # type: ignore[arg-type]
        self._made.append(part)
        return part

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Remember what the plane does wrong inside; an error that is not its own is ours."""
        try:
            yield
        except Exception as error:
            if self.raised_by_plane(error):
                if self.failure is None:
                    self._deadline = time.monotonic() + min(SHRINK_S, self.timeouts.check / 3)
                self.failure = self.failure_of(error)
            raise

    def raised_by_plane(self, error: Exception) -> bool:
        """Whether the plane raised it or it says what the plane did wrong; else it is ours."""
        return isinstance(error, AssertionError) or self._client.recording.raised_by_plane(error)

    def failure_of(self, error: Exception) -> FailureReport:
        """The error and the calls that led to it."""
        recording = self._client.recording
        return FailureReport(
            recording.error_origin(error) or str(error).strip(), error, Excerpt(recording, error)
        )

    def seeded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function or machine, to be explored from the seed."""
        return seeded(f"{self._seed} {self._stream}")(function)

    def with_effort(self, usual: settings) -> settings:
        """The settings with as many examples as the effort is worth."""
        return settings(usual, max_examples=max(1, round(usual.max_examples * self._effort)))

    def run(self, explore: Callable[[], None]) -> None:
        """Run a function under ``given``, or a machine.

        Raises:
            FailedExample: From the plane's error or violation; ``failure`` holds its calls.
        """
        always = True
        try:
            with in_fresh_process():
                explore()
        except OutOfTime:
            self.cut_short = self.failure is None
        except Flaky:
            if self.failure is None:
                raise
            always = False
        except Exception as error:
            if self.failure is None or error is not self.failure.error:
                raise
        finally:
            self._tidy()
            self._tell()
        if self.failure is not None:
            self.fail(self.failure, REPEATS if always else NOT_ALWAYS)

    def fail(self, failure: FailureReport, how: str = REPEATS) -> NoReturn:
        """Let this be what the run has found; ``how`` says what the seed is worth."""
        self.failure = failure
        raise FailedExample(
            f"{failure.text} (found with --seed {self._seed}, {how})"
        ) from failure.error

    def _tidy(self) -> None:
        """Clear what was put; a plane that can't is told of once, CLEAR-02 and 05 judge it."""
        made, self._made = self._made, []
        for part in made:
            try:
                if part.ids:
                    part.clear(sorted(part.ids))
            except Exception as error:  # noqa: BLE001 - a plane may raise anything, see above
                self._left = f"clear_samples raised {type(error).__name__}: {shorten(str(error))}"

    def _tell(self) -> None:
        if self._left:
            warnings.warn(f"rows stay behind, {self._left}", CleanUpFailed, stacklevel=3)
        if self.cut_short:
            warnings.warn(f"time for {self._begun} examples only", FewerExamples, stacklevel=3)


def property_runner(request: pytest.FixtureRequest) -> PropertyRunner:
    """The explorer of the check that asks, on the plane under test."""
    return PropertyRunner(
        request.getfixturevalue("client"),
        request.getfixturevalue("target").timeouts,
        request.config.getoption("--seed", 0),
        check_id(request.node),
        request.config.getoption("--effort", 1.0),
    )


@contextmanager
def report_example(request: pytest.FixtureRequest, explorer: PropertyRunner) -> Iterator[None]:
    """Let the calls of the example that failed be the check's evidence and reproducer."""
    try:
        yield
    finally:
        if explorer.failure is not None:
            request.node.stash[RECORDING] = explorer.failure.calls


def for_all(**strategies: SearchStrategy[Any]) -> Callable[[Check], Check]:
    """The check holds for all values of its parameters that are named here.

        @requirement("PUT-04")
        @for_all(batch=batches(dense_columns))
        def test_dense_fields_come_back(part: Partition, batch: Batch) -> None: ...

    Its parameter ``part`` is a fresh, registered partition for each example. Any other is a fixture
    or comes from ``parametrize``.
    """

    def decorate(check: Check) -> Check:
        named = list(inspect.signature(check).parameters)
        asked = [name for name in named if name not in {"part", *strategies}]

        def run(request: pytest.FixtureRequest, **fixtures: Any) -> None:
            explorer = property_runner(request)

            @given(**strategies)
            def explore(**drawn: Any) -> None:
                explorer.begin()
                with explorer.watching():
                    if "part" in named:
                        drawn["part"] = explorer.new_partition()
                        drawn["part"].register(fields=REGISTERED)
                    check(**fixtures, **drawn)

            with report_example(request, explorer):
                explorer.run(explorer.seeded(explorer.with_effort(SETTINGS)(explore)))

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        run.__name__, run.__doc__, run.__module__ = check.__name__, check.__doc__, check.__module__
        run.__qualname__ = check.__qualname__
        run.__wrapped__ = check  # type: ignore[attr-defined]  # so that pytest shows the check
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind) for name in ["request", *asked]]
        )
        return run

    return decorate
