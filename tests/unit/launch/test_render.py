"""The job's folder and script: options of sbatch with and without GRES, and with pyxis."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rlconform.contract import ConfigError
from rlconform.grpo.config import load_config
from rlconform.launch.job_folder import JobFolder, create
from rlconform.launch.recipes import Recipe, load_recipe
from rlconform.launch.sbatch import container_options, render, sbatch_options, slurm_file, variables
from rlconform.launch.sites import Site, read_site

NAME = "grpo-llama3.1-8b-instruct-2n8g-fsdp2-tq_simple"


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(NAME)


@pytest.fixture(scope="module")
def tiny() -> Recipe:
    return load_recipe(f"{NAME}-tiny")


def test_options_with_gres(recipe: Recipe) -> None:
    site = Site(partition="gpu", account="rl", sbatch=("--comment=nightly",), requeue=False)
    assert sbatch_options(recipe, site, Path("/jobs/x")) == [
        f"--job-name={NAME}",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--partition=gpu",
        "--account=rl",
        "--gres=gpu:8",
        "--exclusive",
        "--time=120",
        "--signal=B:USR1@600",
        "--no-requeue",
        "--open-mode=append",
        "--chdir=/jobs/x",
        "--output=/jobs/x/logs/slurm-%j.log",
        "--comment=nightly",
    ]


def test_options_without_gres_take_whole_nodes_or_cpus(recipe: Recipe, tiny: Recipe) -> None:
    whole = sbatch_options(recipe, Site(gres=False), Path("/jobs/x"))
    assert "--exclusive" in whole
    assert not any("gres" in option for option in whole)
    shared = sbatch_options(tiny, Site(exclusive=False), Path("/jobs/x"))
    assert "--cpus-per-task=4" in shared
    assert "--exclusive" not in shared


def test_pyxis_is_used_with_an_image() -> None:
    assert container_options(Site()) == []
    site = Site(container_image="/images/r l.sqsh", container_mounts=("/data:/data", "/models"))
    assert container_options(site) == [
        "--container-image=/images/r l.sqsh",
        "--container-mounts=/data:/data,/models",
    ]


@pytest.mark.parametrize("image", [None, "/images/r l.sqsh"])
def test_the_script_is_bash_and_its_array_has_the_options(recipe: Recipe, image: str) -> None:
    site = Site(container_image=image, environment={"NCCL_DEBUG": "a 'b' $c"})
    text = render(recipe, site, Path("/jobs/x y"))
    assert text.startswith("#!/usr/bin/env bash\n#SBATCH --job-name=")
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    head = text[: text.index("set -uo pipefail")]
    said = subprocess.run(
        ["bash", "-c", f'{head}\nprintf "%s|" "$JOB_FOLDER" "$NCCL_DEBUG" "${{container[@]}}"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected = ["/jobs/x y", "a 'b' $c", *([f"--container-image={image}"] if image else [])]
    assert said.split("|")[:-1] == expected


def test_scripts_read_only_variables_that_are_set(recipe: Recipe) -> None:
    """Each variable ``JOB_...`` is rendered, or exported by ``ray.sbatch`` itself."""
    texts = [slurm_file(name).read_text() for name in ("ray.sbatch", "ray_node.sh")]
    read = set()
    for text in texts:
        read |= {word for word in _words(text) if word.startswith("JOB_")}
    own = {"JOB_PORT", "JOB_NODES", "JOB_"}
    assert read - own == set(variables(recipe, Site(), Path("/x")))
    assert sum(len(text.splitlines()) for text in texts) <= 200


def _words(text: str) -> list[str]:
    return "".join(char if char.isalnum() or char == "_" else " " for char in text).split()


def test_a_folder_holds_what_the_nodes_need(tiny: Recipe, tmp_path: Path) -> None:
    folder = create(tiny, ["grpo.seed=3"], Site(setup=("module load cuda",)), tmp_path / "job")
    assert (folder.path / "setup.sh").read_text() == "module load cuda\n"
    assert load_config(folder.path / "config.yaml") == tiny.config
    record = json.loads((folder.path / "job.json").read_text())
    assert record["recipe"] == f"{NAME}-tiny"
    assert record["overrides"] == ["grpo.seed=3"]
    assert folder.record().gates == tiny.gates
    code = folder.path / "code"
    assert (code / "rlconform" / "__init__.py").is_file() == bool(record["commit"])
    assert folder.script.read_text() == render(tiny, Site(setup=("module load cuda",)), folder.path)


def test_a_folder_goes_on_with_the_same_recipe_only(tiny: Recipe, tmp_path: Path) -> None:
    first = create(tiny, [], Site(), tmp_path)
    (first.path / "code" / "mark").write_text("kept")
    assert create(tiny, [], Site(partition="other"), tmp_path) == first
    assert (first.path / "code" / "mark").read_text() == "kept"
    assert "--partition=other" in first.script.read_text()
    other = load_recipe(f"{NAME}-tiny", ["grpo.seed=3"])
    with pytest.raises(ConfigError, match="with other options: name another --out"):
        create(other, [], Site(), tmp_path)


def test_runs_are_in_the_order_of_jobs_and_restarts(tmp_path: Path) -> None:
    for name in ("9", "10-1", "10-2", "10", "10-10"):
        (tmp_path / "logs" / name).mkdir(parents=True)
    (tmp_path / "logs" / "slurm-9.log").touch()
    names = [path.name for path in JobFolder(tmp_path).runs]
    assert names == ["9", "10", "10-1", "10-2", "10-10"]


def test_a_folder_without_a_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no job.json: No such file"):
        JobFolder(tmp_path).record()


def test_a_sites_wrong_key_is_named(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("gres: maybe\n")
    with pytest.raises(ConfigError, match=r"site.yaml: gres: Input should be a valid boolean"):
        read_site(file)
    file.write_text("partition: gpu\nsetup: [module load cuda]\nsbatch: ['--comment=x']\n")
    assert read_site(file).setup == ("module load cuda",)
    file.write_text("sbatch: ['; rm']\n")
    with pytest.raises(ConfigError, match=r"sbatch.0: String should match"):
        read_site(file)
