"""``rlconform certify`` certifies planes of one process, from the command to the report."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rlconform.certify import certify as certification
from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.json_report import suite_digest
from rlconform.certify.report.verify import Fault, verify_report


def _imports(path: Path) -> set[str]:
    words = [line.split() for line in path.read_text("utf-8").splitlines()]
    return {w[1].split(".")[0] for w in words if w and w[0] in {"import", "from"}}


@pytest.mark.parametrize(
    "chosen",
    [
        ["-k", "contract and (test_get or test_claim)"],
        pytest.param([], marks=pytest.mark.robustness),
    ],
    ids=len,
)
def test_the_readmes_target_with_an_adapter_written_for_nemo_rl_passes(
    certify: Callable[..., Any], planes: Path, chosen: list[str]
) -> None:
    """The wheel's test certifies an adapter whole, too."""
    assert "rlconform" not in _imports(planes / "nemo_style.py")
    done = certify("acme_target:TARGET", *chosen)
    assert done.report["header"]["target"]["name"] == "acme/dict"
    ran = {c["id"]: c["outcome"] for c in done.report["checks"] if "seconds" in c}
    assert len(ran) > 150
    wrong = {id_: outcome for id_, outcome in ran.items() if outcome != "PASS"}
    assert all("cuda" in id_ for id_ in wrong), wrong  # which needs a GPU
    assert done.report["verdict"]["verdict"] == ("not certified" if chosen else "certified")


def test_config_file_reaches_the_factory(certify: Callable[..., Any], tmp_path: Path) -> None:
    config = tmp_path / "plane.yaml"
    config.write_text("data_plane: {enabled: true, impl: memory}", "utf-8")
    factory = "rlconform.backends:build_data_plane_client"
    done = certify(factory, "--config", str(config), "-k", "test_put_ids.py")
    assert done.report["header"]["target"]["config"]["data_plane"]["impl"] == "memory"
    assert "FAIL" not in done.outcomes().values()


@pytest.mark.parametrize(("said", "threads"), [(None, 1), ("2", 2)])
def test_torch_has_one_thread_unless_the_user_says_otherwise(
    certify: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str | None,
    threads: int,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    config = tmp_path / "plane.yaml"
    config.write_text(f"threads: {threads}", "utf-8")
    done = certify("hostile:with_threads", "--config", str(config), "-k", "have_their_own_cursors")
    came = [check["outcome"] for check in done.checks().values() if "seconds" in check]
    assert came == ["PASS"], done.stdout


def test_a_slow_start_is_not_the_checks_time(certify: Callable[..., Any]) -> None:
    done = certify(
        "hostile:slow_to_open", "-k", "have_their_own_cursors or is_claimed_with_its_own_tags"
    )
    checks = [check for check in done.checks().values() if "seconds" in check]
    assert [check["outcome"] for check in checks] == ["PASS", "PASS"]
    seconds = done.report["header"]["seconds"]
    assert seconds["processes"] > 2 * 1.5  # opened twice


def test_a_slow_planes_report_tells_of_the_examples_it_was_spared(
    certify: Callable[..., Any],
) -> None:
    late = "rlconform.selftest.conforming_planes:LATE"
    done = certify(
        late, "-k", "test_put_writes_properties or test_tag_properties", "--check-timeout", "6"
    )
    outcomes = {check["outcome"] for check in done.checks().values()}
    assert outcomes == {"PASS", "NOT_TESTED"}
    assert done.report["header"]["target"]["timeouts"]["check"] == 6
    assert any("fewer" in note for note in done.report["notes"]), done.report["notes"]


def test_a_narrowed_run_is_never_certified(certify: Callable[..., Any]) -> None:
    done = certify("memory", "-k", "test_get.py")
    assert done.code == 1
    assert done.report["verdict"]["verdict"] == "not certified"
    assert done.outcomes()["GET-09"] == "PASS"
    assert done.outcomes()["CLAIM-03"] == "NOT_TESTED"


def test_failures_come_with_evidence_and_a_reproducer(certify: Callable[..., Any]) -> None:
    done = certify("hostile:drops_unknown_rows", "-k", "test_get.py")
    assert done.code == 1
    broken = {name for name, outcome in done.outcomes().items() if outcome == "FAIL"}
    assert broken == {"GET-04", "GET-06"}
    (reason,) = [r["reason"] for r in done.report["requirements"] if r["id"] == "GET-04"]
    assert "expected an id that was never put to be rejected" in reason
    assert "labeled_column(" in (done.out / "reproducers" / "GET-04.py").read_text("utf-8")


@pytest.mark.parametrize(("isolation", "single"), [("process", False), ("plane", True)])
def test_each_check_gets_a_fresh_plane(
    certify: Callable[..., Any], isolation: str, single: bool
) -> None:
    done = certify(f"hostile:fresh_{isolation}_each", "-k", "test_stat.py")
    ran = [check for check in done.report["checks"] if check["outcome"] != "NOT_TESTED"]
    assert len(ran) > 8
    assert {check["outcome"] for check in ran} == {"PASS"}
    assert (done.report["header"]["test_processes"] == 1) is single


def test_modules_on_pythonpath_are_found(
    certify: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far_away.py").write_text(
        "from rlconform.backends.memory import MemoryClient as plane\n", "utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert certify("far_away:plane", "-k", "STAT-05").outcomes()["STAT-05"] == "PASS"


@pytest.mark.usefixtures("heeding_interrupts")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_that_it_is_partial(
    planes: Path,
    tmp_path: Path,
    running_with: Callable[[str, str], list[str]],
    sent: signal.Signals,
) -> None:
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "rlconform", "certify", "-v", "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        command,
        cwd=planes,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"RLCONFORM_TEST": mark},
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("PASS"):
                break
        running.send_signal(sent)
        running.communicate(timeout=60)
    assert running.returncode == 1
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert not report["footer"]["complete"]
    assert 0 < report["footer"]["checks_run"] < report["footer"]["checks_planned"]
    assert report["verdict"]["verdict"] == "not certified"
    assert running_with("RLCONFORM_TEST", mark) == []


def test_report_is_sealed_and_junit_counts_agree(certify: Callable[..., Any]) -> None:
    done = certify("hostile:drops_unknown_rows", "-k", "test_get.py")
    report = done.report
    parts = ("verdict", "causes", "requirements", "checks", "notes", "runs", "waivers")
    body = {key: report[key] for key in parts}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == report["footer"]["body_sha256"]
    findings = verify_report(done.out).findings
    assert [(one.fault, one.where) for one in findings] == [(Fault.PARTIAL, "selected")]
    suite = ElementTree.parse(done.out / "junit.xml").getroot()
    failed = [check for check in report["checks"] if check["outcome"] == "FAIL"]
    assert int(suite.get("failures", "")) == len(failed) == len(suite.findall(".//failure")) > 0
    assert int(suite.get("tests", "")) == len(report["checks"])


def test_a_part_of_a_run_leaves_the_whole_report_where_it_is(
    certify: Callable[..., Any], tmp_path: Path
) -> None:
    narrow = ("hostile:drops_unknown_rows", "-k", "test_stat")
    whole = certify(*narrow).report
    whole["header"]["selected"] = ""  # as if the run had had all checks
    (tmp_path / "report" / "report.json").write_text(json.dumps(whole), "utf-8")
    narrowed = certify(*narrow)
    assert narrowed.report == whole
    assert "keeps the report of a run of more checks" in narrowed.stdout
    beside = json.loads((tmp_path / "report-partial" / "report.json").read_text("utf-8"))
    assert beside["header"]["selected"] == "test_stat"
    forced = certify(*narrow, "--force")
    assert forced.report["header"]["selected"] == "test_stat"


@pytest.mark.parametrize(("option", "limit"), [(["-x"], 1), (["--max-failures", "2"], 2)])
def test_a_run_stops_after_so_many_failures(
    certify: Callable[..., Any], option: list[str], limit: int
) -> None:
    done = certify("hostile:drops_unknown_rows", "-k", "test_get.py", *option)
    broken = [check for check in done.report["checks"] if check["outcome"] == "FAIL"]
    assert len(broken) == limit
    assert not done.report["footer"]["complete"]
    assert any(f"stopped after {limit} broken" in note for note in done.report["notes"])


def test_a_should_that_fails_is_shown_as_a_warning_while_the_checks_run(
    certify: Callable[..., Any],
) -> None:
    """Once its line showed FAIL, and the last line named it although a MUST had failed."""
    done = certify("hostile:answers_empty_reads", "-k", "test_get.py")
    assert done.outcomes()["GET-12"] == "WARN"
    live, _, after = done.stdout.partition("Requirement ")
    assert [line.split()[0] for line in live.splitlines() if "GET-12" in line] == ["WARN"]
    assert {line.split()[0] for line in live.splitlines() if "GET-04" in line} == {"FAIL"}
    assert "rlconform explain GET-04 shows" in after


def test_what_a_plane_says_is_shown_as_it_is(certify: Callable[..., Any]) -> None:
    done = certify("hostile:says_markup", "-k", "test_stat")
    assert "sig:factory: [red]TypeError[/red]" in done.stdout


def test_unusual_types_are_one_note_and_fail_nothing(certify: Callable[..., Any]) -> None:
    """Once, ids in a tuple failed 77 requirements, and a numpy bool as a status failed 12."""
    done = certify(
        "rlconform.selftest.conforming_planes:NESTED", "-k", "test_stat or test_claim_order"
    )
    (note,) = (note for note in done.report["notes"] if "types" in note)
    assert "put_samples gives sample_ids as tuple, not list" in note
    assert "check_consumption_status returns numpy.bool, not bool" in note.replace("bool_", "bool")
    ran = {check["outcome"] for check in done.report["checks"] if "seconds" in check}
    assert ran == {"PASS"}


def test_a_probe_that_fails_leaves_junit_green(certify: Callable[..., Any]) -> None:
    """Once, probes of undeclared capabilities gave nine failures on a certified plane."""
    done = certify("hostile:declares_nothing", "-k", "test_put_values.py or test_get.py")
    suite = ElementTree.parse(done.out / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    probed = [s.get("message", "") for s in suite.iter("skipped")]
    assert any(
        "does not declare dtype_complex" in said and "TypeError" in said for said in probed
    ), set(probed)


def test_a_report_names_the_checks_as_they_were_at_the_start(fork_server: ForkServer) -> None:
    """Whoever edits checks during a run gets a report of the ones that ran."""
    suite_digest.cache_clear()
    known: list[int] = []
    certification.certify(
        CertifyOptions("memory", checks=("unit/contract/test_shard.py",)),
        listener=lambda _run, _event: known.append(suite_digest.cache_info().currsize),
        fork_server=fork_server,
    )
    assert known
    assert set(known) == {1}


def test_waived_failures_are_deviations(certify: Callable[..., Any], tmp_path: Path) -> None:
    waivers = waiving_the_drops(tmp_path, "2999-01-01")
    narrowed = ("-k", "test_get.py", "--allow-deviations")
    done = certify("hostile:drops_unknown_rows", "--waivers", str(waivers), *narrowed)
    assert {done.outcomes()[name] for name in ("GET-04", "GET-06")} == {"DEVIATION"}
    assert "FAIL" not in done.outcomes().values()
    assert done.code == 1  # as only some checks ran


def test_an_expired_waiver_waives_nothing(certify: Callable[..., Any], tmp_path: Path) -> None:
    waivers = waiving_the_drops(tmp_path, "2001-01-01")
    narrowed = ("-k", "test_get.py", "--allow-deviations")
    done = certify("hostile:drops_unknown_rows", "--waivers", str(waivers), *narrowed)
    assert {done.outcomes()[name] for name in ("GET-04", "GET-06")} == {"FAIL"}
    assert any("expired" in reason for reason in done.report["verdict"]["reasons"])
    assert done.code == 1


def waiving_the_drops(folder: Path, expires: str) -> Path:
    """A waiver file for the requirements that ``hostile:drops_unknown_rows`` breaks."""
    rows = {"GET-04": "never put|unknown", "GET-06": "cleared"}
    waivers = folder / "waivers.toml"
    waivers.write_text(
        "".join(
            f'[[waiver]]\nid = "{name}"\nreason = "known"\nissue = "tracker/1"\n'
            f'match = "{text}"\nexpires = {expires}\n'
            for name, text in rows.items()
        ),
        "utf-8",
    )
    return waivers
