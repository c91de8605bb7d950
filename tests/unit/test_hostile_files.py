"""A file that is no file of ours ends each command that reads it in one sentence, exit code 2."""

from __future__ import annotations

import ast
import pickle
import shlex
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main

import rlconform
from rlconform import _files
from rlconform.cli import main
from tests.unit.fuzz.mutations import BOMB


class Executed:
    """A value whose pickle makes a file when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("planted"),)  # type: ignore[return-value]


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "cut_off": b'{"schema": 3, "header": {"cre',
    "invalid_utf8": b'{"a": "\xff\xfe"}',
    "nul": b"\0" * 100,
    "deep": b'{"a":' * 50_000,
    "deep_list": b"[" * 50_000 + b"]" * 50_000,
    "infinite": b'{"schema": 3, "header": Infinity}',
    "twice": b'{"schema": 3, "schema": 3}',
    "huge_number": b'{"schema": ' + b"9" * 10_000 + b"}",
    "list": b"[1, 2]",
    "pickle": pickle.dumps(Executed()),
    "markup": b"<script>planted()</script>",
    "bomb": BOMB.encode(),
    "tags": b"a: !!python/object/apply:os.system ['touch planted']",
    "zip": b"PK\x03\x04" + b"\0" * 50,
    "a_key_of_a_megabyte": b'{"' + b"x" * (1 << 20) + b'": 1}',
}
#: Commands that read ``hostile``, or ``dir`` with files of the names that the command looks for.
COMMANDS = (
    "certify memory --waivers hostile",
    "certify memory --spread --config hostile",  # refused in any case: --spread needs more
    "certify memory --only-failed hostile",
    "certify memory --sign hostile",
    "verify dir --key hostile",
    "matrix hostile hostile",
    "diff hostile hostile",
    "diff verdicts verdicts",
    "waivers hostile",
    "bench --show hostile",
    "train hostile",
    "launch grpo-llama3.1-8b-instruct-2n8g-fsdp2 --dry-run --site hostile",
    "judge dir",
    "check-metrics hostile 'last(a) > 1'",
    "check-run hostile",
    "check-r3 hostile",
    "events export --to perfetto hostile",
    "events import --from prime-rl dir --out out",
)
#: What is no mistake: YAML is also JSON, and an empty file of waivers, of a trace or of options has
#: none of them.
FINE = {
    ("certify memory --waivers hostile", "empty"),
    ("check-r3 hostile", "empty"),
    ("launch grpo-llama3.1-8b-instruct-2n8g-fsdp2 --dry-run --site hostile", "empty"),
}
#: Names that commands look for in a folder.
NAMES = (
    "dir/report.json", "dir/job.json", "verdicts/verdict.json",
    "dir/rollouts/step_0/train/all/traces.jsonl",
    "dir/rollouts/step_0/train/effective/traces.jsonl",
)  # fmt: skip


@pytest.fixture
def typed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to type in; handlers that a command sets go again."""
    handlers = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR1)}
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for one, handler in handlers.items():
        signal.signal(one, handler)


def typed(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    """Run a command; return its exit code, and what it printed as an error."""
    monkeypatch.setattr(sys, "argv", ["rlconform", *shlex.split(line)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err
    return ended.value.code, shown.err


@pytest.fixture(scope="module", autouse=True)
def one_command_line() -> Iterator[None]:
    """Typer makes the command line once, not for each of hundreds of commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_one_sentence_and_nothing_is_executed(
    typed_in: Path,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, data in HOSTILE.items():
        if (command, name) in FINE:
            continue
        for path in ("hostile", *NAMES):
            (typed_in / path).parent.mkdir(parents=True, exist_ok=True)
            (typed_in / path).write_bytes(data)
        code, said = typed(command, monkeypatch, capsys)
        assert code == 2, (name, said)
        assert len(said.splitlines()) == 1, (name, said)
        assert said.startswith("rlconform: "), (name, said)
        assert len(said) < 2000, (name, said[:200])
        assert not (typed_in / "planted").exists(), name
        assert not (typed_in / "rlconform-report").exists(), name


@pytest.mark.parametrize("name", HOSTILE)
def test_verify_says_that_it_is_no_report(
    typed_in: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (typed_in / "report.json").write_bytes(HOSTILE[name])
    code, said = typed("verify .", monkeypatch, capsys)
    assert (code, said) == (1, "")


@pytest.mark.parametrize("source", ["/dev/zero", "large"])
def test_a_file_without_an_end_is_not_read_to_it(
    typed_in: Path,
    source: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(_files, "LARGEST", 1 << 20)
    with (typed_in / "large").open("wb") as file:
        file.truncate(2 << 30)  # sparse
    code, said = typed(f"certify memory --config {source}", monkeypatch, capsys)
    assert code == 2
    assert "expected at most 1 MiB; got more" in said


#: Calls that execute what they read, by the module's name; those of ``MESSAGES`` read no file.
EXECUTING = {
    "pickle": {"load", "loads", "Unpickler"},
    "cloudpickle": {"load", "loads"},
    "marshal": {"load", "loads"},
    "shelve": {"open"},
    "yaml": {"load", "unsafe_load", "full_load", "load_all", "unsafe_load_all"},
    "builtins": {"eval", "exec", "compile", "__import__"},
}
#: Modules that unpickle what a process of the same run has sent, or what they pickled themselves.
MESSAGES = {"plane/group_broadcast.py", "certify/assertions/jagged.py", "wire/serialization.py"}


def executing_calls(tree: ast.AST) -> Iterator[str]:
    """Yield the calls that execute what they read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in EXECUTING["builtins"]:
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in EXECUTING.get(node.value.id, set()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in EXECUTING:
            yield from (one.name for one in node.names if one.name in EXECUTING[node.module])
        if isinstance(node, ast.Call):
            options = {word.arg: ast.unparse(word.value) for word in node.keywords}
            called = ast.unparse(node.func)
            if called == "torch.load" and options.get("weights_only") != "True":
                yield called
            if called in {"np.load", "numpy.load"} and options.get("allow_pickle") != "False":
                yield called


def test_no_module_unpickles_or_executes_a_file() -> None:
    root = Path(rlconform.__file__).parent
    found = {
        str(path.relative_to(root)): calls
        for path in sorted(root.rglob("*.py"))
        if (calls := list(executing_calls(ast.parse(path.read_text("utf-8")))))
    }
    assert found.keys() <= MESSAGES, found


@pytest.mark.parametrize(
    "source",
    ["pickle.load(f)", "torch.load(f)", "eval(text)", "yaml.load(f, Loader)", "np.load(f)",
     "torch.load(f, weights_only=False)", "from pickle import loads"],
)  # fmt: skip
def test_such_a_call_would_be_found(source: str) -> None:
    assert list(executing_calls(ast.parse(source)))
    assert not list(executing_calls(ast.parse("torch.load(f, weights_only=True); model.eval()")))
