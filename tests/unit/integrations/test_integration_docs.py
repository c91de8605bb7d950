"""docs/integrations.md agrees with the constants, and the sample with what made it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rlconform._resources import resource_dir
from rlconform.integrations import nemo_rl, prime_rl
from rlconform.integrations.coverage import RuleCoverage
from rlconform.integrations.nemo_rl import EventSampler

PAGE = (resource_dir("suites").parent / "docs" / "integrations.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("framework", "coverage"), [("prime-rl", prime_rl.COVERAGE), ("NeMo-RL", nemo_rl.COVERAGE)]
)
def test_the_page_says_what_is_decided(framework: str, coverage: RuleCoverage) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {framework} |"))
    assert set(re.findall(r"`(\w+)`", row)) == set(coverage.decided)
    section = PAGE.partition(f"## {framework}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (yes|no|does not apply)", section, re.MULTILINE)
    said = {rule: how == "yes" for rules, how in rows for rule in re.findall(r"`(\w+)`", rules)}
    expected = dict.fromkeys(coverage.decided, True) | dict.fromkeys(coverage.undecided, False)
    assert said == expected


def test_the_configuration_of_the_page_names_arguments_of_the_sampler() -> None:
    text = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert text is not None
    sampler = OmegaConf.to_container(OmegaConf.create(text[1]).async_rl.sampler)
    assert isinstance(sampler, dict)
    assert sampler.pop("name") == "custom"
    assert sampler.pop("target") == f"{EventSampler.__module__}:{EventSampler.__name__}"
    assert sampler.keys() <= set(EventSampler.__init__.__annotations__)


def test_the_sample_is_what_its_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = resource_dir("fixtures") / "traces"
    made = runpy.run_path(str(folder / "make_prime_rl.py"))
    monkeypatch.setitem(made["main"].__globals__, "FOLDER", tmp_path)
    made["main"]()
    stored = {
        path.relative_to(folder / "prime_rl" / "rollouts"): path.read_bytes()
        for path in (folder / "prime_rl").rglob("*.jsonl")
    }
    assert {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.jsonl")} == stored
