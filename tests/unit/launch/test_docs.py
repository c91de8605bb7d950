"""The dry run in ``docs/recipes.md`` is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from rlconform.launch.recipes import load_recipe
from rlconform.launch.sbatch import render
from rlconform.launch.sites import Site

PAGE = Path(__file__).parents[3] / "docs" / "recipes.md"


def test_the_dry_run_in_the_docs_is_current() -> None:
    section = PAGE.read_text("utf-8").partition("## A dry run\n")[2].partition("\n## ")[0]
    site, printed = re.findall(r"```(?:yaml)?\n(.*?)```", section, re.DOTALL)
    (command,) = re.findall(r"`rlconform launch (\S+) --dry-run .*--out (\S+)`", section)
    recipe, folder = load_recipe(command[0]), Path(command[1])
    headline, place, script = printed.split("\n", 2)
    assert headline.startswith(f"{recipe.name}: {recipe.steps} steps in 1 run on 2 nodes x 8 GPUs")
    assert headline.endswith(f"at most {recipe.gpu_hours:g} GPU hours")
    assert place == f"folder {folder}"
    rendered = render(recipe, Site.model_validate(yaml.safe_load(site)), folder)
    assert rendered.startswith(script)
    assert script.splitlines()[-1].startswith("container=(")
