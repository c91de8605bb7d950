"""Gates over metrics pass, fail, or fail because they cannot be evaluated."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rlconform.cli.check_metrics import check_metrics as command
from rlconform.contract import ConfigError
from rlconform.grpo.metrics.expressions import ExpressionError, parse
from rlconform.grpo.metrics.gates import GateResult, check_metrics, evaluate
from rlconform.grpo.metrics.reader import MetricLog
from rlconform.grpo.metrics.records import RunEnd, RunStart, StepMetrics
from rlconform.grpo.metrics.writer import MetricWriter

VALUES = [4.0, 1.0, 2.5, 0.5]


def run_of(series: Mapping[str, Sequence[float]], *, finished: bool = True) -> MetricLog:
    """A run in which each metric has one value per step."""
    log, steps = MetricLog(), max(map(len, series.values()))
    log.add(RunStart(first_step=1, num_steps=steps))
    for step in range(steps):
        named = {name: values[step] for name, values in series.items() if step < len(values)}
        log.add(StepMetrics(step=step + 1, metrics=named))
    if finished:
        log.add(RunEnd(status="finished"))
    return log


def judged(expression: str, **series: Sequence[float]) -> GateResult:
    return evaluate(run_of(series or {"x": VALUES}), parse(expression))


@pytest.mark.parametrize(
    "expression",
    [
        "min(x) == 0.5",
        "max(x) == 4",
        "mean(x) == 2",
        "median(x) == 1.75",
        "last(x) == 0.5",
        "mean(x[-2:]) == 1.5",
        "mean(x[:2]) == 2.5",
        "max(x[1:3]) == 2.5",
        "max(x[1:-1]) == 2.5",
        "last(x) < 0.5 * max(x)",
        "mean(x[:2]) - mean(x[-2:]) >= 1",
        "-last(x) == -0.5",
        "(max(x) + min(x)) / 2 == 2.25",
        "0.1 < last(x) <= 0.5 < max(x)",
        "min(x) != max(x)",
        "3 > mean(x)",
        "  mean( x )  <  3  ",
    ],
)
def test_what_is_true_passes(expression: str) -> None:
    result = judged(expression)
    assert result.passed, result
    assert result.reason == ""


@pytest.mark.parametrize(
    "expression",
    ["mean(x) > 2", "last(x) >= 1", "max(x) == min(x)", "0.1 < last(x) < 0.5", "min(x) != 0.5"],
)
def test_what_is_false_fails_and_shows_its_values(expression: str) -> None:
    result = judged(expression)
    assert not result.passed
    assert result.reason == ""
    assert result.values


def test_each_value_is_shown_as_it_was_asked_for() -> None:
    result = judged("mean(x[-2:]) < 0.5 * max( x )")
    assert result.values == {"mean(x[-2:])": 1.5, "max( x )": 4.0}


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_aggregates_are_those_of_a_list(values: list[float]) -> None:
    expected = {
        "min(x)": min(values),
        "max(x)": max(values),
        "mean(x)": statistics.fmean(values),
        "median(x)": statistics.median(values),
        "last(x)": values[-1],
    }
    for text, value in expected.items():
        assert judged(f"{text} < 1", x=values).values == {text: value}


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("last(train/loss) == 1", "train/loss"),
        ("last(a/b/c[-1:]) == 1", "a/b/c"),
        ("last(timing.train/step.seconds) == 1", "timing.train/step.seconds"),
        ('last("val/pass@1") == 1', "val/pass@1"),
        ("last('val/pass@1'[-1:]) == 1", "val/pass@1"),
        ('last("train/lambda") == 1', "train/lambda"),
        ("last(récompense) == 1", "récompense"),
    ],
)
def test_names_are_read_as_metrics_are_called(expression: str, name: str) -> None:
    assert evaluate(run_of({name: [0.0, 1.0]}), parse(expression)).passed


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("comparison", ["< 9e99", "> -9e99", "!= 7"])
@pytest.mark.parametrize("function", ["min", "max", "mean", "median", "last"])
def test_a_value_that_is_not_finite_fails(
    value: float, at: int, comparison: str, function: str
) -> None:
    values = [1.0, 2.0, 3.0]
    values[at] = value
    result = judged(f"{function}(x) {comparison}", x=values)
    assert not result.passed
    assert "at some step" in result.reason


def test_a_value_outside_the_window_is_not_looked_at() -> None:
    assert judged("mean(x[-2:]) == 2", x=[math.nan, 1, 3]).passed


def test_a_metric_that_is_missing_fails_and_like_names_are_told() -> None:
    result = evaluate(run_of({"train/reward": [1.0]}), parse("mean(train/rewards) < 1e9"))
    assert not result.passed
    assert "no metric 'train/rewards'" in result.reason
    assert "did you mean 'train/reward'?" in result.reason


@pytest.mark.parametrize("window", ["[4:]", "[:0]", "[3:1]", "[-5:]", "[:9]"])
def test_a_window_without_its_values_fails(window: str) -> None:
    result = judged(f"mean(x{window}) < 1e9")
    assert not result.passed
    assert "values" in result.reason


def test_a_run_without_steps_fails() -> None:
    log = MetricLog()
    log.add(RunStart(first_step=1, num_steps=3))
    log.add(RunEnd(status="finished"))
    assert not evaluate(log, parse("mean(x) < 1e9")).passed


@pytest.mark.parametrize("ending", [None, "failed"])
def test_a_run_that_ended_early_fails_whatever_holds(ending: str | None) -> None:
    log = run_of({"x": VALUES}, finished=False)
    if ending:
        log.add(RunEnd.model_validate({"status": ending}))
    result = evaluate(log, parse("mean(x) == 2"))
    assert not result.passed
    assert "after step 4 of 4" in result.reason
    assert result.values == {"mean(x)": 2.0}


def test_a_run_short_of_its_steps_fails_whatever_holds() -> None:
    log = MetricLog()
    log.add(RunStart(first_step=1, num_steps=3))
    log.add(StepMetrics(step=1, metrics={"x": 1.0}))
    log.add(RunEnd(status="finished"))
    result = evaluate(log, parse("mean(x) == 1"))
    assert not result.passed
    assert "step 2 of 3" in result.reason


@pytest.mark.parametrize("expression", ["1 / (last(x) - 0.5) < 9", "max(x) * 1e308 * 10 != 1"])
def test_arithmetic_without_a_finite_result_fails(expression: str) -> None:
    result = judged(expression)
    assert not result.passed
    assert "zero" in result.reason or "inf" in result.reason


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "not an expression"),
        ("mean(x) <", "not an expression"),
        ("mean(x)\0 < 1", "not an expression"),
        ("mean(train/lambda) < 1", "not an expression"),
        ("mean(x)", "comparison"),
        ("mean(x) < 1 and last(x) < 1", "comparison"),
        ("not mean(x) < 1", "comparison"),
        ("mean(x) = 1", "not an expression"),
        ("mean(x) in 1", "expected one of <"),
        ("mean(x) is 1", "expected one of <"),
        ("1 < 2", "no metric"),
        ("x < 1", "expected a number, or"),
        ("'x' < mean(x)", "expected a number, or"),
        ("std(x) < 1", "expected one of min, max"),
        ("mean(x, y) < 1", "expected a number, or"),
        ("mean(x, last=3) < 1", "expected a number, or"),
        ("mean() < 1", "expected a number, or"),
        ("mean(*x) < 1", "expected a metric"),
        ("x.mean() < 1", "expected a number, or"),
        ("mean(x)(x) < 1", "expected a number, or"),
        ("mean(x[1]) < 1", "expected a metric"),
        ("mean(x[::2]) < 1", "expected a metric"),
        ("mean(x[a:]) < 1", "are integers"),
        ("mean(x[0.5:]) < 1", "are integers"),
        ("mean(x[True:]) < 1", "are integers"),
        ("mean(x[1:][1:]) < 1", "comes last"),
        ("mean(x[1:]/y) < 1", "comes last"),
        ("mean(x + y) < 1", "expected a metric"),
        ("mean(mean(x)) < 1", "expected a metric"),
        ("mean('') < 1", "expected a metric"),
        ("mean(3) < 1", "expected a metric"),
        ("mean(x) ** 2 < 1", "expected a number, or"),
        ("mean(x) < True", "expected a number, or"),
        ("mean(x) < 1j", "expected a number, or"),
        ("mean(x) < 1e999", "too large"),
        (f"mean(x) < 1{'0' * 400}", "too large"),
        ("mean(x) < (y := 2)", "expected a number, or"),
        ("mean(x) < __import__('os').getpid()", "expected a number, or"),
        ("(lambda: mean(x))() < 1", "expected a number, or"),
    ],
)
def test_what_is_no_gate_is_refused(expression: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        parse(expression)


def a_file(folder: Path) -> Path:
    with MetricWriter(folder, num_steps=len(VALUES)) as writer:
        for step, value in enumerate(VALUES, start=1):
            writer.write(step, {"train/reward": value})
    return writer.path


def test_a_file_is_held_against_all_expressions(tmp_path: Path) -> None:
    results = check_metrics(a_file(tmp_path), ["mean(train/reward) == 2", "last(train/loss) < 1"])
    assert [result.passed for result in results] == [True, False]


def test_an_expression_that_can_not_be_read_is_told_before_the_file() -> None:
    with pytest.raises(ExpressionError):
        check_metrics(Path("nowhere"), ["mean(x) < 1", "mean("])
    with pytest.raises(ConfigError, match="nowhere"):
        check_metrics(Path("nowhere"), ["mean(x) < 1"])


def run_command(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_the_command_passes_fails_and_refuses(tmp_path: Path) -> None:
    path = str(a_file(tmp_path))
    holds, fails = "max(train/reward) < 5", "mean(train/reward[-2:]) > 2"
    code, shown = run_command(path, holds)
    assert (code, "pass" in shown, "max(train/reward) = 4" in shown) == (0, True, True)
    code, shown = run_command(path, holds, fails)
    assert (code, "FAIL" in shown, "mean(train/reward[-2:]) = 1.5" in shown) == (1, True, True)
    code, shown = run_command(path, "last(train/loss) < 1")
    assert (code, "no metric" in shown) == (1, True)
    code, shown = run_command(path, "mean(")
    assert (code, "not an expression" in shown) == (2, True)
    code, shown = run_command(str(tmp_path / "nowhere"), holds)
    assert (code, "No such file" in shown) == (2, True)


def test_the_command_without_an_expression_is_no_check(tmp_path: Path) -> None:
    assert run_command(str(a_file(tmp_path)))[0] == 2


@pytest.mark.parametrize("text", ["(" * 900, "-" * 900 + "1 > 0", "x" * 10**6, "last(a) > 0\0"])
def test_an_expression_that_nests_or_does_not_end_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)
