"""Good files of the formats, small ones, so that thousands of mutations are read in minutes."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from rlconform._resources import resource_dir
from rlconform.certify.concurrency.named_checkers import REPEATED
from rlconform.certify.concurrency.operation import Operation, to_jsonl
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.document import (
    ReportDocument,
    body_digest,
    digest_of,
    read_report,
)
from rlconform.certify.report.judge import judge
from rlconform.certify.report.report_folder import write_report
from rlconform.certify.report.waivers import Waiver
from rlconform.certify.results import CheckResult, Outcome, PlannedCheck, RunRecord
from rlconform.launch.job_folder import JobFolder, create
from rlconform.launch.judge import document, judge_job
from rlconform.launch.recipes import load_recipe
from rlconform.launch.sites import Site
from tests.unit.check_run.log_builder import DRIVER
from tests.unit.check_run.small_log import Log

_CREATED = datetime(2026, 11, 26, 12, tzinfo=UTC)
_WAIVER = Waiver("PUT-25", "fixed", "https://tracker.example.org/1", "other", date(2027, 3, 1))
_TWICE = to_jsonl(
    [
        Operation(who="p", op="put", start=1.0, end=1.1, ids=("r",), fields=("x",), version=1),
        Operation(who="a", op="claim", start=1.2, end=1.3, ids=("r",), task="train", asked=4),
        Operation(who="b", op="claim", start=1.4, end=1.5, ids=("r",), task="train", asked=4),
        Operation(who="c", op="get", start=1.25, end=1.45, ids=("r",), fields=("x",)),
        Operation(who="d", op="clear", start=2.0, ids=("r",), error="ValueError: no"),
    ]
)


@cache
def _folder() -> Path:
    """A folder of this process, which its end removes."""
    made = tempfile.TemporaryDirectory(prefix="fuzz-")
    _KEPT.append(made)
    return Path(made.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@cache
def _right_report() -> Path:
    """The folder of a small report: a pass, a failure, a race, a waived failure, one not run."""
    file = "unit/contract/test_get.py::test"
    plan = [
        PlannedCheck(f"{file}_{i}", requirement, "", "unit")
        for i, requirement in enumerate(("GET-01", "GET-04", "CLAIM-02", "PUT-25", "TAG-01"))
    ]
    passed = [CheckResult(one.id, one.requirement, Outcome.PASS, seconds=0.1) for one in plan[:-1]]
    race = f"none that does. duplicated: row 'r' was claimed twice ({REPEATED} duplicated)"
    results = [
        passed[0],
        replace(passed[1], outcome=Outcome.FAIL, evidence="expected an error; got 2 rows",
                steps=["client.get_samples()"], reproducer="print('GET-04')\n"),
        replace(passed[2], outcome=Outcome.FAIL, evidence=race, history=_TWICE),
        replace(passed[3], outcome=Outcome.FAIL, evidence="expected row a; got other bytes"),
    ]  # fmt: skip
    target = {
        "name": "acme", "version": "1.4", "level": "unit", "config": {"slots": [4, {"a": 1}]},
        "capabilities": {"objects": True, "cuda": "it has none"},
    }  # fmt: skip
    run = RunRecord(target, plan, {one.id: one for one in results}, ["a note"], seconds=9.0)
    certificate = judge(CertifyOptions("acme:TARGET"), run, [_WAIVER], False, _CREATED)
    return write_report(certificate, _folder() / "report")


def report() -> ReportDocument:
    """The right report."""
    return read_report(_right_report())


def reports() -> list[bytes]:
    """``report.json``, as it is written and compact."""
    text = (_right_report() / "report.json").read_bytes()
    return [text, json.dumps(json.loads(text)).encode()]


def is_right(data: bytes) -> bool:
    """Whether it says what the right report says."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return bool(said == json.loads(reports()[0]))


def report_folder(folder: Path) -> Path:
    """Copy the right report into a folder."""
    return Path(shutil.copytree(_right_report(), folder / "report"))


def sealed_again(data: bytes) -> bytes:
    """Renew the digests of every second changed report, so that what follows them is read."""
    if len(data) % 2:
        return data
    try:
        said = json.loads(data)
        said["footer"]["header_sha256"] = digest_of(said["header"])
        said["footer"]["body_sha256"] = body_digest(said)
        return json.dumps(said).encode()
    except (ValueError, LookupError, TypeError, RecursionError):
        return data


def histories() -> list[bytes]:
    """The history of the race."""
    return [_TWICE.encode()]


def replace_history(report: Path, data: bytes) -> str:
    """Write another history into a report, with its digest; return its name."""
    said: dict[str, Any] = json.loads((report / "report.json").read_bytes())
    name: str = next(check["history"] for check in said["checks"] if check.get("history"))
    (report / name).write_bytes(data)
    said["footer"]["files"][name] = hashlib.sha256(data).hexdigest()
    (report / "report.json").write_text(json.dumps(said), "utf-8")
    return name


def signatures() -> list[bytes]:
    """Signatures of no key of ours."""
    return [b64encode(bytes(64)) + b"\n", b64encode(bytes(range(64)))]


def waivers() -> list[bytes]:
    """Files of waivers."""
    one = (
        '[[waiver]]\nid = "{}"\nreason = "known"\nissue = "tracker/1"\nmatch = "never|a+"\n'
        "expires = 2027-01-01\n"
    )
    return [one.format("GET-04").encode(), (one.format("GET-04") + one.format("PUT-25")).encode()]


def metrics() -> list[bytes]:
    """The metrics of a run, and of one that was resumed."""
    start = {"record": "start", "time": 1.0, "format": 1, "first_step": 1, "num_steps": 3}
    values = {"train/reward": 0.5, "train/loss": 1}
    steps = [{"record": "step", "time": 2.0, "step": n, "metrics": values} for n in (1, 2, 3)]
    end = {"record": "end", "time": 3.0, "status": "finished", "last_step": 3}
    again = start | {"first_step": 2}
    runs = ([start, *steps, end], [start, *steps[:2], again, *steps[1:], end])
    return ["".join(json.dumps(one) + "\n" for one in run).encode() for run in runs]


def events() -> list[bytes]:
    """The events of a run of one process."""
    log = Log()
    for number, name in enumerate("abc"):
        log.generate(name, number)
        log.train(name, number, number)
        log.apply(number + 1)
    log.finish()
    records = [
        msgspec.structs.replace(record, source=DRIVER, seq=number)
        for number, record in enumerate(log.records)
    ]
    return [b"".join(msgspec.json.encode(one) + b"\n" for one in records)]


def bench() -> bytes:
    """A small document of ``bench``."""
    path = resource_dir("fixtures") / "bench" / "bench.json"
    said = json.loads(path.read_bytes())
    for part in ("shapes", "memcpy", "operations", "claim_rate", "growth", "wake"):
        said[part] = said[part][:6]
    return json.dumps(said).encode()


@cache
def job() -> Path:
    """The folder of a job with metrics."""
    name = "grpo-llama3.1-8b-instruct-2n8g-fsdp2-ray_store-tiny"
    folder = create(load_recipe(name, []), [], Site(), _folder() / "job")
    shutil.rmtree(folder.path / "code", ignore_errors=True)
    folder.metrics.parent.mkdir()
    folder.metrics.write_bytes(metrics()[0])
    return folder.path


def verdict() -> bytes:
    """The verdict of the job."""
    return json.dumps(document(judge_job(JobFolder(job()), None, None))).encode()


def problems() -> list[bytes]:
    """A file of problems."""
    lines = [
        {"question": "Ann has 3 apples and buys 4?", "answer": "3 + 4 = 7 #### 7"},
        {"question": "q", "answer": "1,000", "data_source": "gsm8k", "extra_info": {"level": 2}},
    ]
    return ["".join(json.dumps(one) + "\n" for one in lines).encode()]
