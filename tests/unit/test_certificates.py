"""The certificates in the docs: each archive verifies, and the page says what they say."""

from __future__ import annotations

import tarfile
from pathlib import Path

from benchmarks.certificates import FOLDER, pack, page_of
from rlconform.certify.report.verify import verify_report

#: The planes of several processes, which level durability asks for.
PLANES = ["ray_store", "simple", "mooncake_cpu"]


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


def test_each_archive_verifies_and_the_page_says_what_they_say(tmp_path: Path) -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{one}.tar.xz" for one in PLANES}
    documents = {}
    for name in PLANES:
        found = verify_report(unpacked(FOLDER / f"{name}.tar.xz", tmp_path / name))
        assert found.findings == []
        assert found.document is not None
        assert found.document.header.target.level == "durability"
        documents[name] = found.document
    page = (FOLDER.parent / "certificates.md").read_text("utf-8")
    assert page == page_of(documents)


def test_an_archive_has_the_files_and_nothing_of_their_owner(tmp_path: Path) -> None:
    report = tmp_path / "report"
    (report / "histories").mkdir(parents=True)
    (report / "report.json").write_text("{}")
    (report / "histories" / "a.jsonl").write_text("1\n")
    pack(report, tmp_path / "a.tar.xz")
    with tarfile.open(tmp_path / "a.tar.xz") as packed:
        entries = packed.getmembers()
        assert [one.name for one in entries] == ["histories/a.jsonl", "report.json"]
        assert {(one.uid, one.uname, one.mtime) for one in entries} == {(0, "", 0)}
    again = unpacked(tmp_path / "a.tar.xz", tmp_path / "again")
    assert (again / "histories" / "a.jsonl").read_text() == "1\n"
