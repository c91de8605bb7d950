"""Whatever is wrong with what a person types ends in one sentence that says what to do."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from rlconform.cli import app, main

#: What is typed, and a part of the sentence. ``none`` does not exist, ``folder`` is empty, ``text``
#: a file of text, ``bytes`` a file that is no text.
TYPED = [
    ("nothing", "No such command 'nothing'; see rlconform --help"),
    ("certif", "Did you mean 'certify'"),
    ("size nothing", "nothing"),
    ("soak nothing", "unknown target 'nothing'"),
    ("new-adapter 1x", "expected a name of letters, digits, - and _"),
    ("new-adapter acme --out text", "expected a new or empty folder; got text"),
    ("certify --nonsense", "certify: No such option: --nonsense"),
    ("certify memory more", "unexpected extra argument"),
    ("certify ''", "unknown target ''"),
    ("certify memroy", "did you mean 'memory'"),
    ("certify text", "unknown target 'text'"),
    ("certify memory --level unti", "unknown level 'unti': one of unit, functional, e2e"),
    ("certify memory --seed abc", "'--seed'"),
    ("certify memory --check-timeout 0", "'--check-timeout'"),
    ("certify memory --config none", "none: No such file or directory; name a YAML file"),
    ("certify memory --config folder", "folder: Is a directory; name a YAML file"),
    ("certify memory --config bytes", "bytes: not valid YAML"),
    ("certify memory --waivers none", "`rlconform waivers --write` makes such a file"),
    ("certify memory --waivers bytes", "bytes: not UTF-8"),
    ("certify memory --sign none", "name the file of an ed25519 key"),
    ("certify memory --sign text", "openssl genpkey -algorithm ed25519"),
    ("certify memory --out text", "is a file; name a folder"),
    ("certify memory --out /proc/x", "can't be written to"),
    ("certify ray_store --ray-address here", "expected HOST:PORT"),
    ("verify none", "name the --out folder of certify"),
    ("verify folder", "name the --out folder of certify"),
    ("verify folder --key text", "expected an ed25519 key"),
    ("matrix", "Missing argument 'DIR...'; see rlconform matrix --help"),
    ("matrix folder", "name the --out folder of certify"),
    ("matrix text", "text: not JSON"),
    ("diff folder", "Missing argument 'NEW'"),
    ("diff none folder", "name the --out folder of certify"),
    ("waivers bytes", "bytes: not UTF-8"),
    ("waivers --days x", "'--days'"),
    ("bench", "give targets to measure"),
    ("bench memory --shape huge", "no shape 'huge'; there are tiny"),
    ("bench --show none", "none: No such file or directory; name a bench.json"),
    ("bench --show text", "not a document of a bench run"),
    ("bench memory --out text", "is a file; name a folder"),
    ("self-test --mutant nothing", "rlconform self-test --list shows them"),
    ("self-test --gate --races", "leave nothing to try"),
    ("self-test --jobs 0", "'--jobs'"),
    ("self-test --mutant drops_unknown_ids --out text", "is a file; name a folder"),
    ("train", "Missing argument 'config'"),
    ("train none", "there are llama-8b"),
    ("train text.yaml", "text.yaml: No such file or directory; name a YAML file"),
    ("train bytes", "bytes: not valid YAML"),
    ("train tiny_llama_copy nonsense", "'nonsense' is not key=value"),
    ("train tiny_llama_copy no.such.key=1", "there is no key no; there are"),
    ("train tiny_llama_copy grpo.max_num_steps=x", "grpo.max_num_steps is 'x'"),
    ("train tiny_llama_copy data_plane=nothing", "there are memory, ray_store"),
    ("train tiny_llama_copy logger.log_dir=text", "logger.log_dir text: "),
    ("train tiny_llama_copy logger.log_dir=/proc/x", "can't be written to"),
    ("train tiny_llama_copy --ray-address here", "expected HOST:PORT"),
    ("launch nothing", "expected grpo-MODEL-"),
    ("launch grpo-llama3.1-8b-instruct-2n8g-fsdp2 --site none", "name a YAML file"),
    ("launch grpo-llama3.1-8b-instruct-2n8g-fsdp2 --out text", "is a file; name a folder"),
    ("launch grpo-llama3.1-8b-instruct-2n8g-fsdp2 --baseline none", "none: no job.json"),
    ("launch grpo-llama3.1-8b-instruct-2n8g-fsdp2 --steps 0", "'--steps'"),
    ("judge folder", "name the folder of a job that `rlconform launch` has written"),
    ("judge text", "no job.json"),
    ("check-metrics none 'last(a) > 1'", "name the metrics.jsonl of a run"),
    ("check-metrics folder 'last(a) > 1'", "name the metrics.jsonl of a run"),
    ("check-metrics text 'last(a) > 1'", "line 1 is not a record of a metrics file"),
    ("check-metrics text", "Missing argument 'EXPR...'"),
    ("check-run", "Missing argument"),
    ("check-run none", "none does not exist; name files of events, or their folder"),
    ("check-run folder", "has no files of events (events-<role>-<pid>.jsonl)"),
    ("check-run text", "no event can be read in text"),
    ("check-run folder --rule nothing", "no rule 'nothing'"),
    ("check-r3 none", "expected a trace of router replay"),
    ("check-r3 folder", "a folder with files r3-*.jsonl"),
    ("check-r3 text", "text:1: no record of a trace of router replay"),
    ("schema", "Choose from: events, report"),
    ("schema nothing", "'nothing' is not one of 'events', 'report'"),
    ("events", "Missing command; see rlconform events --help"),
    ("events export folder", "Missing option '--to'"),
    ("events export --to perfetto none", "none does not exist"),
    ("events export --to perfetto text --out folder", "Is a directory; name another --out"),
    ("events export --to perfetto text", "no event can be read in text"),
    ("events import --from prime-rl folder --out out", "folder of a run of prime-rl"),
    ("events import --from prime-rl folder", "Missing option '--out'"),
    ("list NOPE", "there are REG, PUT, GET"),
    ("explain", "Missing argument 'requirement'"),
    ("explain NOPE-01", "no such requirement"),
]


@pytest.fixture
def typed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder to type in, with the files of ``TYPED``; handlers that a command sets go again."""
    handlers = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR1)}
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "bytes").write_bytes(b"\0\xff\xfe")
    monkeypatch.chdir(tmp_path)
    yield
    for one, handler in handlers.items():
        signal.signal(one, handler)


@pytest.mark.usefixtures("typed_in")
@pytest.mark.parametrize(("typed", "said"), TYPED, ids=[typed for typed, _ in TYPED])
def test_a_mistake_is_answered_by_one_sentence_and_exit_code_2(
    typed: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["rlconform", *shlex.split(typed)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert shown.err.startswith("rlconform: ")
    assert len(shown.err.splitlines()) == 1
    assert said in shown.err
    assert "Traceback" not in shown.out + shown.err


def test_every_command_is_among_them() -> None:
    commands = getattr(get_command(app), "commands")  # noqa: B009
    assert commands.keys() - {typed.split()[0] for typed, _ in TYPED} == set()


def test_without_arguments_the_commands_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rlconform"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in {0, None}
    assert "certify" in capsys.readouterr().out
