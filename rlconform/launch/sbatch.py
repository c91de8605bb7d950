"""``render``: the text that sbatch runs: options and variables, then ``ci/slurm/ray.sbatch``."""

from __future__ import annotations

import shlex
from pathlib import Path

from rlconform._resources import resource_dir
from rlconform.launch.recipes import Recipe
from rlconform.launch.sites import Site


def render(recipe: Recipe, site: Site, folder: Path) -> str:
    """Return the script of a recipe's job in its folder."""
    options = [f"#SBATCH {option}" for option in sbatch_options(recipe, site, folder)]
    exports = [
        f"export {name}={shlex.quote(value)}"
        for name, value in variables(recipe, site, folder).items()
    ]
    container = " ".join(map(shlex.quote, container_options(site)))
    lines = ["#!/usr/bin/env bash", *options, "", *exports, f"container=({container})", ""]
    return "\n".join(lines) + slurm_file("ray.sbatch").read_text("utf-8")


def sbatch_options(recipe: Recipe, site: Site, folder: Path) -> list[str]:
    """List sbatch's options for a recipe on a site."""
    job = recipe.job
    named = {"partition": site.partition, "account": site.account, "qos": site.qos}
    options = [f"--job-name={recipe.name}", f"--nodes={job.nodes}", "--ntasks-per-node=1"]
    options += [f"--{name}={value}" for name, value in named.items() if value]
    if job.gpus_per_node and site.gres:
        options.append(f"--gres=gpu:{job.gpus_per_node}")
    elif not site.exclusive and job.cpus_per_node:
        options.append(f"--cpus-per-task={job.cpus_per_node}")
    if site.exclusive:
        options.append("--exclusive")
    options += [
        f"--time={job.minutes_per_run}",
        f"--signal=B:USR1@{job.stop_ahead_s}",
        "--requeue" if site.requeue else "--no-requeue",
        "--open-mode=append",
        f"--chdir={folder}",
        f"--output={folder}/logs/slurm-%j.log",
    ]
    return [*options, *site.sbatch]


def variables(recipe: Recipe, site: Site, folder: Path) -> dict[str, str]:
    """Return the environment variables that the scripts of the job read."""
    job = recipe.job
    own = {
        "JOB_FOLDER": str(folder),
        "JOB_PYTHON": site.python,
        "JOB_CPUS": str(job.cpus_per_node or ""),
        "JOB_GPUS": str(job.gpus_per_node),
        "JOB_OBJECT_STORE": str(job.object_store_bytes or ""),
        "JOB_BRING_UP_S": str(job.bring_up_s),
        "JOB_FIRST_PORT": str(site.first_port),
        "JOB_HOST_SUFFIX": site.host_suffix,
        "JOB_REQUEUE": str(int(site.requeue)),
        "JOB_MAX_RESTARTS": str(site.max_restarts),
    }
    if recipe.gates.r3_trace:
        own["RLCONFORM_R3_TRACE"] = str(folder / "run" / "r3")
    return {**own, **site.environment}


def container_options(site: Site) -> list[str]:
    """List srun's options for pyxis; none without an image."""
    if site.container_image is None:
        return []
    options = [f"--container-image={site.container_image}"]
    if site.container_mounts:
        options.append(f"--container-mounts={','.join(site.container_mounts)}")
    return options


def slurm_file(name: str) -> Path:
    """Return the path of a file of ``ci/slurm``."""
    return resource_dir("ci") / "slurm" / name
