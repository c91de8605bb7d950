"""The importer of prime-rl's traces: what is decided, what is found, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlconform._resources import resource_dir
from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.rules import ALL_RULES
from rlconform.check_run.verdict import RuleOutcome
from rlconform.cli import app
from rlconform.integrations.prime_rl import COVERAGE, PrimeRun, import_prime_rl

SAMPLE = resource_dir("fixtures") / "traces" / "prime_rl"
DECLARED = PrimeRun(group_size=4, staleness_bound=1)

Episodes = list[dict[str, Any]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the sample."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "outputs"))


def traces(source: Path, step: int, subset: str) -> Path:
    return source / "rollouts" / f"step_{step}" / "train" / subset / "traces.jsonl"


def edit(source: Path, step: int, subset: str, change: Callable[[Episodes], Any]) -> None:
    path = traces(source, step, subset)
    episodes = [json.loads(line) for line in path.read_text().splitlines()]
    change(episodes)
    path.write_text("".join(json.dumps(one) + "\n" for one in episodes))


def judged(source: Path, declared: PrimeRun = DECLARED) -> RunReport:
    out = source.parent / "events"
    import_prime_rl(source, out, declared)
    return judge_run([out])


def outcomes(report: RunReport) -> dict[str, RuleOutcome]:
    return {verdict.rule: verdict.outcome for verdict in report.verdicts}


def failed(report: RunReport) -> set[str]:
    return {rule for rule, outcome in outcomes(report).items() if outcome is RuleOutcome.FAIL}


def test_the_coverage_is_about_all_rules() -> None:
    assert COVERAGE.decided.keys() | COVERAGE.undecided.keys() == {rule.name for rule in ALL_RULES}
    assert not COVERAGE.decided.keys() & COVERAGE.undecided.keys()


def test_a_right_run_passes_what_can_be_decided_and_nothing_else(source: Path) -> None:
    report = judged(source)
    assert not report.holes
    expected = dict.fromkeys(COVERAGE.decided, RuleOutcome.PASS)
    expected |= dict.fromkeys(COVERAGE.undecided, RuleOutcome.INDETERMINATE)
    assert outcomes(report) == expected | {"plane_ops": RuleOutcome.NOT_APPLICABLE}
    assert report.lags["start"] == {0: 2, 1: 3}


def test_what_is_not_declared_is_not_decided(source: Path) -> None:
    found = outcomes(judged(source, PrimeRun()))
    assert found["staleness"] is RuleOutcome.INDETERMINATE
    assert found["group_integrity"] is RuleOutcome.INDETERMINATE


def test_times_and_tokens_are_those_of_the_traces(source: Path) -> None:
    log = import_prime_rl(source, source.parent / "events", DECLARED)
    records = [json.loads(line) for line in log.path.read_text().splitlines()]
    first = next(one for one in records if one["event"]["type"] == "rollout_finished")
    assert first["wall_ns"] == 1_790_000_029_500_000_000
    assert first["event"]["tokens"] == 10
    assert first["run"] == "made-run"


def again(episodes: Episodes) -> None:
    episodes.append(json.loads(json.dumps(episodes[0])))


def other_reward(episodes: Episodes) -> None:
    episodes[0]["traces"][0]["rewards"]["exact"]["score"] = 0.75


def older(episodes: Episodes) -> None:
    for episode in episodes:
        episode["run"]["work"]["policy"]["start"] = 0


def fails(episodes: Episodes) -> None:
    episodes[0]["traces"][0] |= {"ok": False}


DEFECTS: dict[str, tuple[int, str, Callable[[Episodes], Any], set[str]]] = {
    "a trace is twice in a batch": (2, "effective", again, {"exactly_once"}),
    "a reward is another one": (2, "effective", other_reward, {"reward"}),
    "a group is too old": (3, "all", older, {"staleness"}),
    "a failed trace is trained on": (2, "all", fails, {"group_integrity", "reward"}),
    "a trace never arrived": (2, "all", lambda e: e.pop(0), {"group_integrity", "reward"}),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(source: Path, name: str) -> None:
    step, subset, change, rules = DEFECTS[name]
    edit(source, step, subset, change)
    assert failed(judged(source)) == rules


def test_a_trace_that_a_later_step_trains_on_again_is_found(source: Path) -> None:
    line = traces(source, 1, "effective").read_text().splitlines(keepends=True)[0]
    with traces(source, 3, "effective").open("a") as file:
        file.write(line)
    report = judged(source)
    assert "exactly_once" in failed(report)
    verdict = next(one for one in report.verdicts if one.rule == "exactly_once")
    assert "group-1" in verdict.anomalies[0].sentence


def test_a_group_that_never_arrived_is_found(source: Path) -> None:
    edit(source, 1, "all", lambda episodes: episodes.__delitem__(slice(4)))
    assert failed(judged(source)) == {"accounting"}


def test_traces_of_a_frozen_policy_leave_staleness_undecided(source: Path) -> None:
    edit(source, 1, "all", lambda episodes: [e["run"]["work"].pop("policy") for e in episodes])
    assert outcomes(judged(source))["staleness"] is RuleOutcome.INDETERMINATE


def test_an_episode_without_traces_has_failed(source: Path) -> None:
    edit(source, 3, "all", lambda episodes: episodes[3].update(traces=[]))
    assert not failed(judged(source))


@pytest.mark.parametrize(
    "line", ["no JSON", '{"id": "e"', '{"id": 7}', "[]", '{"id": "e", "task": {}}', "\xff"]
)
@pytest.mark.parametrize("subset", ["all", "effective"])
def test_a_malformed_line_is_one_sentence_and_leaves_no_file(
    source: Path, line: str, subset: str
) -> None:
    path = traces(source, 2, subset)
    path.write_bytes(path.read_bytes() + line.encode("latin-1") + b"\n")
    number = path.read_bytes().count(b"\n")
    out = source.parent / "events"
    result = CliRunner().invoke(
        app, ["events", "import", "--from", "prime-rl", str(source), "--out", str(out)]
    )
    assert result.exit_code == 2
    said = result.output.replace("\n", " ")
    assert said.startswith("rlconform: events import: ")
    assert f"line {number} is no episode" in said
    assert not list(out.glob("*"))


def test_a_folder_without_traces_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no episode in rollouts"):
        import_prime_rl(tmp_path, tmp_path / "events")


def test_the_command_says_what_is_decided_and_never_overwrites(source: Path) -> None:
    out = source.parent / "events"
    typed = ["events", "import", "--from", "prime-rl", str(source), "--out", str(out),
             "--group-size", "4", "--staleness-bound", "1"]  # fmt: skip
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 0
    assert "Decided are exactly_once, group_integrity, staleness, reward." in result.output
    assert outcomes(judge_run([out]))["staleness"] is RuleOutcome.PASS
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 2
    assert "is there already" in result.output
