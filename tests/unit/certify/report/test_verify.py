"""``verify`` names what was changed in a report, even by one who renews its digests."""

from __future__ import annotations

import hashlib
import json
import subprocess
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from typer.testing import CliRunner

from rlconform.certify.report.document import body_digest, digest_of, report_schema
from rlconform.certify.report.signature import SIGNATURE, signer, verifier
from rlconform.certify.report.verify import Fault, verify_report
from rlconform.certify.results import RunRecord
from rlconform.cli import app

Report = dict[str, Any]
Issue = Callable[..., Path]


def read(folder: Path) -> Report:
    loaded: Report = json.loads((folder / "report.json").read_text("utf-8"))
    return loaded


def save(folder: Path, report: Report, renew: bool) -> None:
    """Write a report; ``renew`` computes all digests again, as one who knows the format would."""
    if renew:
        report["footer"] |= {
            "header_sha256": digest_of(report["header"]),
            "body_sha256": body_digest(report),
            "files": {
                str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(folder.rglob("*"))
                if path.is_file() and path.name not in {"report.json", SIGNATURE}
            },
        }
    (folder / "report.json").write_text(json.dumps(report), "utf-8")


def run(*typed: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in typed])
    return result.exit_code, result.output


def broken(report: Report, requirement: str) -> Report:
    found: Report = next(
        check
        for check in report["checks"]
        if check["requirement"] == requirement and check["outcome"] == "FAIL"
    )
    return found


def result(report: Report, requirement: str) -> Report:
    found: Report = next(row for row in report["requirements"] if row["id"] == requirement)
    return found


def test_a_right_report_is_verified(issued: Path) -> None:
    assert verify_report(issued).findings == []
    code, output = run("verify", issued)
    assert code == 0
    assert "not certified at level unit. The report is as it was written" in output
    assert "Whose report it is was not checked: it has no signature" in output


def test_the_verdict_can_be_asked_for_as_well(issued: Path) -> None:
    assert run("verify", issued, "--certified")[0] == 1


def test_a_folder_without_a_report_is_one_sentence(tmp_path: Path) -> None:
    code, output = run("verify", tmp_path / "none")
    assert code == 2
    assert output.startswith("rlconform: verify: ")
    assert len(output.strip().splitlines()) == 1


# -- tampering -----------------------------------------------------------------------------------


def _pass(report: Report, requirement: str) -> None:
    """Let a failed check pass, without a trace of the failure."""
    broken(report, requirement).update(outcome="PASS", evidence="", steps=[], history="")


def verdict(report: Report, _: Path) -> None:
    report["verdict"] = {"verdict": "certified", "exit_code": 0, "reasons": []}


def requirement(report: Report, _: Path) -> None:
    result(report, "GET-04").update(outcome="PASS", reason="", failures=[])


def check(report: Report, _: Path) -> None:
    _pass(report, "GET-04")


def evidence_stays(report: Report, _: Path) -> None:
    broken(report, "GET-04")["outcome"] = "PASS"


def check_of_another_requirement(report: Report, _: Path) -> None:
    broken(report, "GET-04")["requirement"] = "GET-05"


def check_of_no_requirement(report: Report, _: Path) -> None:
    broken(report, "GET-04")["requirement"] = "GET-99"


def check_of_a_capability(report: Report, _: Path) -> None:
    broken(report, "GET-04")["capability"] = "cuda"


def check_of_a_higher_level(report: Report, _: Path) -> None:
    broken(report, "GET-04").update(level="e2e")


def check_removed(report: Report, _: Path) -> None:
    report["checks"].remove(broken(report, "GET-04"))


def history_replaced(report: Report, folder: Path) -> None:
    lines = (folder / broken(report, "CLAIM-02")["history"]).read_text().splitlines()
    (folder / broken(report, "CLAIM-02")["history"]).write_text("\n".join(lines[:2]) + "\n")


def history_removed(report: Report, folder: Path) -> None:
    (folder / broken(report, "CLAIM-02")["history"]).unlink()


def history_of_a_pass(report: Report, _: Path) -> None:
    broken(report, "CLAIM-02").update(outcome="PASS", evidence="")


def reproducer(_: Report, folder: Path) -> None:
    (folder / "reproducers" / "GET-04.py").write_text("print('nothing is wrong')\n")


def reproducer_added(_: Report, folder: Path) -> None:
    (folder / "reproducers" / "GET-05.py").write_text("print('nothing is wrong')\n")


def capability(report: Report, _: Path) -> None:
    report["header"]["target"]["capabilities"]["group_claims"] = True


def waiver_expired(report: Report, _: Path) -> None:
    report["waivers"][0]["expires"] = "2026-01-01"


def waiver_of_another_failure(report: Report, _: Path) -> None:
    report["waivers"][0]["match"] = "never said"


def waiver_without_meaning(report: Report, _: Path) -> None:
    report["waivers"][0]["match"] = "("


def history_of_other_types(report: Report, folder: Path) -> None:
    (folder / broken(report, "CLAIM-02")["history"]).write_text(
        '{"who": "a", "op": "claim", "start": 1, "end": 2, "ids": 7}\n'
    )


def waiver_added(report: Report, _: Path) -> None:
    report["waivers"].append(report["waivers"][0] | {"id": "GET-04", "match": "rows"})


def badge(_: Report, folder: Path) -> None:
    path = folder / "badge.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"message": "certified"}))


def junit(_: Report, folder: Path) -> None:
    (folder / "junit.xml").write_text("<testsuite tests='0' failures='0'/>")


def page(_: Report, folder: Path) -> None:
    path = folder / "report.html"
    path.write_text(path.read_text().replace("Not certified", "Certified"))


def page_removed(_: Report, folder: Path) -> None:
    (folder / "report.html").unlink()


def other_set(report: Report, _: Path) -> None:
    report["header"]["requirement_set"] = "2026.11"


def other_text(report: Report, _: Path) -> None:
    report["header"]["requirement_set_sha256"] = "0" * 64


def not_run(report: Report, _: Path) -> None:
    broken(report, "GET-04").update(ran=False, outcome="NOT_TESTED", evidence="", steps=[])


def run_added(report: Report, _: Path) -> None:
    passing = next(check for check in report["checks"] if check["outcome"] == "PASS")
    rule = {"rule": "staleness", "title": "No sample is stale", "outcome": "fail", "missing": [],
            "reason": "", "count": 1, "anomalies": []}  # fmt: skip
    report["runs"].append(
        {"check": passing["id"], "requirement": passing["requirement"], "name": "asynchronous",
         "verdict": "The run breaks 1 of 12 rules", "events": 9, "groups": "", "rules": [rule]}
    )  # fmt: skip


def counts(report: Report, _: Path) -> None:
    report["footer"]["checks_run"] += 100


def time(report: Report, _: Path) -> None:
    report["header"]["created"] = "2025-01-01T00:00:00+00:00"


def key_added(report: Report, _: Path) -> None:
    report["header"]["remark"] = "certified by hand"


@dataclass(frozen=True)
class Tampering:
    """A change to a report, whether all digests are renewed, and what verify must say."""

    change: Callable[[Report, Path], None]
    renew: bool
    fault: Fault
    where: str
    what: str


CHANGED = "its digest is not the one in the footer"
TAMPERINGS = {
    "the verdict": Tampering(verdict, False, Fault.TAMPERED, "body", CHANGED),
    "the verdict, sealed again": Tampering(
        verdict, True, Fault.TAMPERED, "verdict", 'expected "not certified"; got "certified"'
    ),
    "a requirement's result": Tampering(
        requirement, True, Fault.TAMPERED, "GET-04", "its checks say FAIL; the report says PASS"
    ),
    "a check's outcome": Tampering(
        check, True, Fault.TAMPERED, "GET-04", "its checks say PASS; the report says FAIL"
    ),
    "an outcome against its evidence": Tampering(
        evidence_stays, True, Fault.TAMPERED, "test_get", "expected no evidence with PASS"
    ),
    "a check moved to another requirement": Tampering(
        check_of_another_requirement, True, Fault.TAMPERED, "test_get", "expected a check of GET-04"
    ),
    "a check of no requirement": Tampering(
        check_of_no_requirement, True, Fault.TAMPERED, "test_get", "there is no requirement GET-99"
    ),
    "a check tied to a capability": Tampering(
        check_of_a_capability, True, Fault.TAMPERED, "test_get", "does not depend on 'cuda'"
    ),
    "a check moved to a higher level": Tampering(
        check_of_a_higher_level, True, Fault.TAMPERED, "test_get", "expected level unit; got e2e"
    ),
    "a check removed": Tampering(
        check_removed, True, Fault.TAMPERED, "test_get", "the report has no result of it"
    ),
    "a history replaced": Tampering(history_replaced, False, Fault.TAMPERED, "histories/", CHANGED),
    "a history replaced, sealed again": Tampering(
        history_replaced,
        True,
        Fault.TAMPERED,
        "unit/",
        "expected duplicated to find in the history",
    ),
    "a history removed": Tampering(
        history_removed, False, Fault.MISSING, "histories/", "it is not there"
    ),
    "a history removed, sealed again": Tampering(
        history_removed, True, Fault.MISSING, "histories/", "is not among the files in the footer"
    ),
    "a history of a pass": Tampering(
        history_of_a_pass, True, Fault.TAMPERED, "unit/", "in which checkers find"
    ),
    "a reproducer": Tampering(reproducer, False, Fault.TAMPERED, "reproducers/GET-04.py", CHANGED),
    "a reproducer added": Tampering(
        reproducer_added, False, Fault.TAMPERED, "reproducers/GET-05.py", "does not name this file"
    ),
    "a capability": Tampering(capability, False, Fault.TAMPERED, "header", CHANGED),
    "a capability, sealed again": Tampering(
        capability, True, Fault.TAMPERED, "CLAIM-15", "its checks say NOT_TESTED"
    ),
    "a waiver's date": Tampering(
        waiver_expired, True, Fault.TAMPERED, "PUT-25", "its checks say FAIL; the report says DEVIA"
    ),
    "a waiver's match": Tampering(
        waiver_of_another_failure, True, Fault.TAMPERED, "PUT-25", "its checks say FAIL"
    ),
    "a waiver that can't be read": Tampering(
        waiver_without_meaning, True, Fault.TAMPERED, "waiver PUT-25", "not a regular expression"
    ),
    "a history of other types": Tampering(
        history_of_other_types, True, Fault.TAMPERED, "histories/", "not a history: ConfigError"
    ),
    "a waiver added": Tampering(
        waiver_added, True, Fault.TAMPERED, "GET-04", "its checks say DEVIATION"
    ),
    "the badge": Tampering(
        badge, True, Fault.TAMPERED, "badge.json", "what follows from the results"
    ),
    "junit.xml": Tampering(
        junit, True, Fault.TAMPERED, "junit.xml", "what follows from the results"
    ),
    "the page": Tampering(page, False, Fault.TAMPERED, "report.html", CHANGED),
    "the page removed": Tampering(
        page_removed, False, Fault.MISSING, "report.html", "it is not there"
    ),
    "the requirement set": Tampering(
        other_set, True, Fault.OTHER_SET, "requirement_set", "got 2026.11"
    ),
    "the text of the requirement set": Tampering(
        other_text, True, Fault.OTHER_SET, "requirement_set_sha256", "is not the one that this"
    ),
    "a check that did not run": Tampering(not_run, True, Fault.PARTIAL, "checks", "checks ran"),
    "a run that breaks a rule": Tampering(
        run_added,
        True,
        Fault.TAMPERED,
        "unit/",
        "its run breaks staleness: expected FAIL; got PASS",
    ),
    "the counts": Tampering(counts, False, Fault.TAMPERED, "footer", "got other counts"),
    "the time": Tampering(time, False, Fault.TAMPERED, "header", CHANGED),
    "a key of its own": Tampering(
        key_added, True, Fault.TAMPERED, "report.json", "header.remark: Extra inputs"
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_named(issued: Path, name: str) -> None:
    planted = TAMPERINGS[name]
    report = read(issued)
    planted.change(report, issued)
    save(issued, report, planted.renew)
    findings = verify_report(issued).findings
    assert [
        one
        for one in findings
        if one.fault is planted.fault and planted.where in one.where and planted.what in one.what
    ], findings
    code, output = run("verify", issued)
    assert code == 1
    assert str(planted.fault) in output


def test_a_text_that_is_no_report_is_named(issued: Path) -> None:
    (issued / "report.json").write_text('{"schema": 3, "header":')
    (finding,) = verify_report(issued).findings
    assert "not JSON" in finding.what
    (issued / "report.json").write_text('{"schema": 2}')
    (finding,) = verify_report(issued).findings
    assert "expected a report of schema 3; got 2" in finding.what


def test_a_path_out_of_the_report_is_not_read(issued: Path) -> None:
    report = read(issued)
    report["footer"]["files"]["../secret"] = "0" * 64
    save(issued, report, renew=False)
    assert [one.where for one in verify_report(issued).findings] == ["../secret"]


def test_a_partial_report_is_said_to_be_one(issue_report: Issue) -> None:
    def stop(run: RunRecord) -> None:
        run.results.pop(next(reversed(run.results)))
        run.complete = False

    (finding,) = verify_report(issue_report(stop)).findings
    assert (finding.fault, finding.where) == (Fault.PARTIAL, "checks")


# -- signature -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    """Files of a key, its public half, and both in OpenSSH's form."""

    private: Path
    public: Path
    ssh_private: Path
    ssh_public: Path


def keys_in(folder: Path) -> Keys:
    folder.mkdir()
    key = Ed25519PrivateKey.generate()
    made = Keys(folder / "key.pem", folder / "key.pub", folder / "id", folder / "id.pub")
    plain = NoEncryption()
    made.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, plain))
    made.ssh_private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, plain))
    public = key.public_key()
    made.public.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    made.ssh_public.write_bytes(public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return made


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return keys_in(tmp_path / "keys")


def test_a_signed_report_is_verified_with_either_form_of_the_key(
    issue_report: Issue, keys: Keys
) -> None:
    for private in (keys.private, keys.ssh_private):
        folder = issue_report(sign=signer(private))
        for public in (keys.public, keys.ssh_public):
            code, output = run("verify", folder, "--key", public)
            assert code == 0
            assert "signed with this key" in output
    assert "it has a signature; --key checks it" in run("verify", folder)[1]


def test_openssl_verifies_the_signature(issue_report: Issue, keys: Keys, tmp_path: Path) -> None:
    folder = issue_report(sign=signer(keys.private))
    raw = tmp_path / "raw.sig"
    raw.write_bytes(b64decode((folder / SIGNATURE).read_text()))
    ran = subprocess.run(
        ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", str(keys.public),
         "-in", str(folder / "report.json"), "-sigfile", str(raw)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.strip()) == (0, "Signature Verified Successfully")


def test_consistent_tampering_is_found_by_the_signature(issue_report: Issue, keys: Keys) -> None:
    """Without a signature nobody can tell this report from one of a plane that passes GET-04."""
    folder = issue_report(sign=signer(keys.private))
    report = read(issue_report(lambda run: _repair(run, "GET-04"), "repaired"))
    save(folder, report, renew=False)
    findings = verify_report(folder, verifier(keys.public)).findings
    assert findings[0].fault is Fault.SIGNATURE


def _repair(run: RunRecord, requirement: str) -> None:
    for one in list(run.results.values()):
        if one.requirement == requirement:
            run.results[one.id] = type(one)(one.id, requirement, type(one.outcome).PASS)


@pytest.mark.parametrize("planted", ["another key", "no signature", "no base64"])
def test_a_signature_that_is_not_the_keys_is_named(
    issue_report: Issue, keys: Keys, tmp_path: Path, planted: str
) -> None:
    folder = issue_report(sign=signer(keys_in(tmp_path / "other").private))
    if planted == "no signature":
        (folder / SIGNATURE).unlink()
    elif planted == "no base64":
        (folder / SIGNATURE).write_text("no, it is \u00fc not", "utf-8")
    found = verify_report(folder, verifier(keys.public))
    assert [one.fault for one in found.findings] == [Fault.SIGNATURE]
    assert not found.signed


def test_a_file_that_is_no_key_is_one_sentence(issued: Path, tmp_path: Path, keys: Keys) -> None:
    (tmp_path / "text").write_text("no key")
    for path in (tmp_path / "text", tmp_path / "none", keys.private):
        code, output = run("verify", issued, "--key", path)
        assert code == 2
        assert len(output.strip().splitlines()) == 1
    code, output = run("certify", "memory", "--sign", keys.public, "--out", tmp_path / "out")
    assert (code, "expected an ed25519 key as PEM" in output) == (2, True)


def test_a_new_report_drops_the_signature_of_the_old_one(issue_report: Issue, keys: Keys) -> None:
    folder = issue_report(sign=signer(keys.private))
    assert (folder / SIGNATURE).is_file()
    assert not (issue_report() / SIGNATURE).exists()


# -- schema --------------------------------------------------------------------------------------


def test_the_published_schema_describes_the_report(issued: Path) -> None:
    code, output = run("schema", "report")
    assert code == 0
    schema = json.loads(output)
    assert schema == report_schema()
    assert schema["properties"]["schema"]["const"] == 3
    assert set(schema["required"]) == set(read(issued))
