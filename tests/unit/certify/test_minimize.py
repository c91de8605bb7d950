"""Plain reproducers lose the calls that their defect does not need, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.certify.isolation.script_runner import ScriptRunner
from rlconform.certify.minimize import minimize
from rlconform.certify.reproduce.expectations import ScriptExpectation
from rlconform.certify.reproduce.fewer_calls import calls_of, minimized, on_reference, without
from rlconform.certify.reproduce.plain_script import plain_script
from rlconform.certify.reproduce.render import Call, Origin
from rlconform.certify.results import CheckResult, Outcome, RunRecord

PLANE = '''
from rlconform.backends.memory import MemoryClient, TARGET


class ForgetsTags(MemoryClient):
    """Forgets the tags of a row when a later put brings fields only."""

    def put_samples(self, sample_ids, partition_id, fields=None, tags=None):
        if fields is not None and tags is None:
            tags = [{"length": 0} for _ in sample_ids]
        return super().put_samples(sample_ids, partition_id, fields, tags)


def target(config, bootstrap):
    return ForgetsTags()
'''

SCRIPT = """sys.path.insert(0, "")  # the folder in which it runs
from plane import target

target = target
client = getattr(target, "open", target)(getattr(target, "config", {}), True)
r0 = attempt(client.register_partition, partition_id='p', fields=['x'])
r1 = attempt(client.get_samples, sample_ids=['a'], partition_id='p')
r2 = attempt(client.put_samples, sample_ids=['a'], partition_id='p')
r3 = attempt(client.get_data, r2)

went_as_before([r0, r2], [r1], [])
expect_equal(r3, 1, 'x')
end(0, "the defect is gone")
"""


def test_a_call_goes_with_what_the_script_expected_of_it() -> None:
    shorter = without(SCRIPT, "r1")
    assert shorter is not None
    assert calls_of(shorter) == ["r0", "r2", "r3"]
    assert "went_as_before([r0, r2], [], [])" in shorter


@pytest.mark.parametrize("needed", ["r2", "r3"])
def test_a_call_whose_result_is_used_stays(needed: str) -> None:
    assert without(SCRIPT, needed) is None


def test_calls_go_one_by_one_while_the_script_shows_the_defect() -> None:
    tried: list[list[str]] = []

    def shows(script: str) -> bool:
        tried.append(calls_of(script))
        return "r0" in tried[-1]

    assert calls_of(minimized(SCRIPT, shows, lambda: True)) == ["r0", "r2", "r3"]
    assert tried == [["r0", "r2", "r3"], ["r2", "r3"]]


def test_nothing_is_tried_without_time() -> None:
    def shows(_script: str) -> bool:
        raise AssertionError("a script ran")

    assert minimized(SCRIPT, shows, lambda: False) == SCRIPT


def test_the_reference_takes_the_planes_place() -> None:
    script = on_reference(SCRIPT)
    assert "from rlconform.backends.memory import TARGET" in script
    assert "plane" not in script.partition("r0 = ")[0]
    assert calls_of(script) == calls_of(SCRIPT)


def test_scripts_crash_hang_and_end_apart_from_this_process() -> None:
    with ScriptRunner() as runner:
        told = runner.run("print('expected a; got b'); raise SystemExit(3)", 60.0)
        assert told is not None
        assert (told.code, told.lines) == (3, ("expected a; got b",))
        crash = runner.run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 20.0)
        assert crash is not None
        assert crash.code == -11
        assert runner.run("import threading; threading.Event().wait()", 0.5) is None
        again = runner.run("pass", 20.0)
        assert again is not None
        assert again.code == 0


def test_a_call_that_the_defect_does_not_need_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forgets_tags.py").write_text(PLANE, "utf-8")
    monkeypatch.chdir(tmp_path)
    sources = [
        "attempt(client.register_partition, partition_id='p', fields=['x'], num_samples=4, "
        "consumer_tasks=['train'])",
        "attempt(client.put_samples, sample_ids=['b'], partition_id='p', tags=[{'a': 1}])",
        "attempt(client.put_samples, sample_ids=['a'], partition_id='p', tags=[{'a': 1}])",
        "attempt(client.put_samples, sample_ids=['a'], partition_id='p', "
        "fields=TensorDict({'x': torch.ones(1)}, batch_size=[1]))",
        "attempt(client.claim_meta, partition_id='p', task_name='train', required_fields=['x'], "
        "batch_size=1, blocking=False)",
    ]
    calls = [
        Call("client", "client.call()", f"r{number} = {source}", number=number)
        for number, source in enumerate(sources)
    ]
    source = "expect_equal(r4.tags, [{'a': 1}], 'tags')"
    expected = ScriptExpectation(source, 4, claimed={})
    origin = Origin("TAG-02", "unit/x.py::test", "forgets_tags:target", {})
    evidence = "expected tags {'a': 1}; got {'length': 0}"
    script = plain_script(origin, evidence, calls, expected)
    assert len(calls_of(script)) == 5
    run = RunRecord()
    run.results["check"] = CheckResult(
        "check", "TAG-02", Outcome.FAIL, evidence=evidence, plain_script=script
    )
    assert not minimize(run, ["TAG-02"], 0.0)
    assert minimize(run, ["TAG-02"], 60.0)
    assert calls_of(run.results["check"].plain_script) == ["r0", "r2", "r3", "r4"]
