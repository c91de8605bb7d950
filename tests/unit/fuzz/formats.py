"""The formats that commands read: samples of each, and how a command reads one.

Each reader returns what it shows a person, in which no text of the file may be markup, and raises
nothing but the error that the command prints as one sentence.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import date
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from rich.console import Console

from rlconform._resources import resource_dir
from rlconform._yaml import read_config
from rlconform.bench.report.console import print_document
from rlconform.certify.concurrency import check_saved
from rlconform.certify.report.document import read_report
from rlconform.certify.report.signature import SIGNATURE, signer, verifier
from rlconform.certify.report.verify import verify_report
from rlconform.certify.report.waivers import apply_waivers, load_waivers
from rlconform.check_run.judge import judge_run
from rlconform.check_run.report.console import print_report
from rlconform.check_run.report.html_report import render_run_page
from rlconform.check_run.report.json_report import report_document
from rlconform.check_run.report.junit_report import junit_of_run
from rlconform.cli import bench
from rlconform.contract import ConfigError
from rlconform.events.left_over import left_over
from rlconform.events.perfetto import write_trace
from rlconform.events.reader import LogReader, log_files
from rlconform.grpo.config import load_config
from rlconform.grpo.metrics.expressions import parse
from rlconform.grpo.metrics.gates import evaluate
from rlconform.grpo.metrics.reader import read_metrics
from rlconform.grpo.router_replay.check import check_trace
from rlconform.grpo.router_replay.trace_records import read_trace
from rlconform.grpo.tasks import jsonl
from rlconform.integrations.prime_rl import PrimeRun, import_prime_rl
from rlconform.launch.compare_verdicts import changes_sentence, compare_verdicts, read_verdict
from rlconform.launch.endings import read_end
from rlconform.launch.job_folder import JobFolder
from rlconform.launch.judge import document, judge_job, junit
from rlconform.launch.sites import read_site
from tests.unit.fuzz import samples
from tests.unit.fuzz.report_pages import shown_of_report
from tests.unit.grpo.router_replay.test_check_r3 import replayed, right

#: A key pair for signatures, as PEM: private, public.
_KEY = Ed25519PrivateKey.generate()
PRIVATE = _KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
OPENSSH = _KEY.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
PUBLIC = _KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
SSH = _KEY.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


@dataclass(frozen=True)
class Format:
    """A format: good files of it, how a command reads one, and the errors of the command."""

    samples: Callable[[], list[bytes]]
    read: Callable[[Path, bytes], str]  # in an empty folder
    errors: tuple[type[Exception], ...] = (ConfigError,)
    #: Whether a page is made of it: what it returns is checked for markup.
    shown: bool = False


def _report(folder: Path, data: bytes) -> str:
    report = samples.report_folder(folder)
    sealed = samples.sealed_again(data)
    (report / "report.json").write_bytes(sealed)
    findings = verify_report(report).findings
    assert findings or sealed != data or samples.is_right(data), "a change was not found"
    return shown_of_report(read_report(report), samples.report())


def _history(folder: Path, data: bytes) -> str:
    report = samples.report_folder(folder)
    name = samples.replace_history(report, data)
    verify_report(report)
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        assert check_saved.main([str(report / name), "duplicated"]) in {0, 1, 2}
    return ""


def _signature(folder: Path, data: bytes) -> str:
    report = samples.report_folder(folder)
    (report / SIGNATURE).write_bytes(data)
    (folder / "key").write_bytes(PUBLIC)
    assert not verify_report(report, verifier(folder / "key")).signed
    return ""


def _key(folder: Path, data: bytes) -> str:
    (folder / "key").write_bytes(data)
    for load in (signer, verifier):
        try:
            load(folder / "key")
        except ConfigError:
            continue
    return ""


def _waivers(folder: Path, data: bytes) -> str:
    (folder / "waivers.toml").write_bytes(data)
    waivers = load_waivers(folder / "waivers.toml")
    apply_waivers([], waivers, date(2026, 1, 1))
    return ""


def _plane_config(folder: Path, data: bytes) -> str:
    (folder / "plane.yaml").write_bytes(data)
    read_config(folder / "plane.yaml")
    return ""


def _run_config(folder: Path, data: bytes) -> str:
    for path in (resource_dir("reference_configs") / "grpo").glob("*.yaml"):  # its defaults
        shutil.copy(path, folder)
    (folder / "run.yaml").write_bytes(data)
    load_config(folder / "run.yaml")
    return ""


def _site(folder: Path, data: bytes) -> str:
    (folder / "site.yaml").write_bytes(data)
    read_site(folder / "site.yaml")
    return ""


def _metrics(folder: Path, data: bytes) -> str:
    (folder / "metrics.jsonl").write_bytes(data)
    log = read_metrics(folder / "metrics.jsonl")
    log.ended_early()
    for expression in ("mean(train/reward[-2:]) > 0", "max(train/loss) < 2 * last(train/loss)"):
        evaluate(log, parse(expression))
    return ""


def _trace(folder: Path, data: bytes) -> str:
    (folder / "r3-rank-1.jsonl").write_bytes(data)
    check_trace(read_trace(folder))
    return ""


def _events(folder: Path, data: bytes) -> str:
    (folder / "events-trainer-1.jsonl").write_bytes(data)
    report = judge_run([folder])
    json.dumps(report_document(report))
    print_report(report, Console(file=StringIO()))
    ElementTree.tostring(junit_of_run(report))
    with (folder / "trace.json").open("wb") as file:
        write_trace(LogReader(log_files([folder])), file)
    left_over(folder)
    return render_run_page(report)


def _prime_rl(folder: Path, data: bytes) -> str:
    train = folder / "run" / "rollouts" / "step_0" / "train"
    for subset in ("all", "effective"):
        (train / subset).mkdir(parents=True)
        (train / subset / "traces.jsonl").write_bytes(data)
    import_prime_rl(folder / "run", folder / "events", PrimeRun(None, 4, 1))
    judge_run([folder / "events"])
    return ""


def _bench(folder: Path, data: bytes) -> str:
    (folder / "bench.json").write_bytes(data)
    read = bench._read(folder / "bench.json")
    print_document(Console(file=StringIO()), read)
    return ""


def _verdict(folder: Path, data: bytes) -> str:
    (folder / "verdict.json").write_bytes(data)
    right_one = samples.verdict()
    (folder / "right").mkdir()
    (folder / "right" / "verdict.json").write_bytes(right_one)
    old, new = read_verdict(folder), read_verdict(folder / "right")
    changes_sentence(compare_verdicts(old, new))
    return ""


def _job(folder: Path, data: bytes) -> str:
    shutil.copytree(samples.job(), folder / "job")
    (folder / "job" / "job.json").write_bytes(data)
    judged = judge_job(JobFolder(folder / "job"), None, None)
    json.dumps(document(judged))
    ElementTree.tostring(junit(judged))
    return ""


def _ending(folder: Path, data: bytes) -> str:
    (folder / "end").write_bytes(data)
    read_end(folder)
    return ""


def _problems(folder: Path, data: bytes) -> str:
    (folder / "train.jsonl").write_bytes(data)
    jsonl._read(folder / "train.jsonl")
    return ""


def _of_files(*paths: Path) -> list[bytes]:
    return [path.read_bytes() for path in paths]


def _prime_samples() -> list[bytes]:
    files = (resource_dir("fixtures") / "traces" / "prime_rl").rglob("traces.jsonl")
    return _of_files(*sorted(files))


def _trace_samples() -> list[bytes]:
    records = [*right(), replayed()]
    return ["".join(one.model_dump_json() + "\n" for one in records).encode()]


def _configs(kind: str) -> list[bytes]:
    return _of_files(*sorted((resource_dir("reference_configs") / kind).glob("*.yaml")))


_INTERPOLATED = b"""\
model: {name: m, size: 4}
path: ${model.name}/${.model.size}
list: [1, "${path}"]
"""
_SITE = (
    b"partition: batch\naccount: null\ncontainer_mounts: [/data:/data]\npython: python3.11\n"
    b"setup: [module load cuda]\nenvironment: {HF_HOME: /models}\nfirst_port: 12000\n"
)

FORMATS: dict[str, Format] = {
    "report": Format(samples.reports, _report, shown=True),
    "history": Format(samples.histories, _history),
    "signature": Format(samples.signatures, _signature),
    "key": Format(lambda: [PRIVATE, OPENSSH, PUBLIC, SSH], _key),
    "waivers": Format(samples.waivers, _waivers),
    "plane_config": Format(lambda: [*_configs("data_plane"), _INTERPOLATED], _plane_config),
    "run_config": Format(lambda: _configs("grpo"), _run_config),
    "site": Format(lambda: [_SITE], _site),
    "metrics": Format(samples.metrics, _metrics),
    "trace": Format(_trace_samples, _trace, (ConfigError, OSError)),
    "events": Format(samples.events, _events, (ValueError, OSError), shown=True),
    "prime_rl": Format(_prime_samples, _prime_rl, (ValueError, OSError)),
    "bench": Format(lambda: [samples.bench()], _bench),
    "verdict": Format(lambda: [samples.verdict()], _verdict),
    "job": Format(lambda: [(samples.job() / "job.json").read_bytes()], _job),
    "ending": Format(lambda: [b"driver 1\n", b"node 2 n1 n2\n"], _ending),
    "problems": Format(samples.problems, _problems),
}
