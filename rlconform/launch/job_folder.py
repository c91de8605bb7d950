"""``JobFolder``: all files of a launched recipe, on a file system that all nodes share.

config.yaml    the resolved configuration, which `rlconform train` reads
job.json       recipe, job, gates, GPU hours, commit, versions (``JobRecord``)
job.sbatch     what was submitted; ray_node.sh and setup.sh, which it runs on the nodes
code/          the tracked files as they were
run/           metrics.jsonl, events/, checkpoints/: of all runs of the chain
logs/          ID[-RESTART]/: job.log, driver.log, head-NODE.log, worker-NODE.log, end
complete       exists once the last step was made
baseline/      of the legacy twin's run: job.json and run/metrics.jsonl, copied by the judge
verdict.json, junit.xml    what the judge says
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict

from rlconform import __version__
from rlconform._files import is_file, parse_model, read_text
from rlconform._versions import installed_versions
from rlconform.contract import ConfigError
from rlconform.grpo.metrics.records import METRICS_FILE
from rlconform.launch.jobs import GatesConfig, JobConfig
from rlconform.launch.recipes import Recipe
from rlconform.launch.sbatch import render, slurm_file
from rlconform.launch.sites import Site
from rlconform.launch.snapshot import take_snapshot

_PACKAGES = (
    "ray", "torch", "transformers", "tensordict", "TransferQueue", "megatron-core",
    "mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine", "vllm",
)  # fmt: skip


#: ``ID`` or ``ID-RESTART``; anything else below ``logs`` is not ours.
_IS_RUN = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})*")


class JobRecord(BaseModel):
    """What ``job.json`` holds: which recipe was launched, and from what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: str
    overrides: tuple[str, ...]
    steps: int
    runs: int
    gpu_hours: float
    job: JobConfig
    gates: GatesConfig
    commit: str  # "" for an installed package
    modified: tuple[str, ...]  # tracked files that differ from the commit
    rlconform: str
    versions: dict[str, str]


@dataclass(frozen=True)
class JobFolder:
    """The paths of a job's files."""

    path: Path

    @property
    def script(self) -> Path:
        """What sbatch runs."""
        return self.path / "job.sbatch"

    @property
    def metrics(self) -> Path:
        """The metrics of all runs."""
        return self.path / "run" / METRICS_FILE

    @property
    def events(self) -> Path:
        """The event logs of all runs."""
        return self.path / "run" / "events"

    @property
    def r3_trace(self) -> Path:
        """The trace of router replay."""
        return self.path / "run" / "r3"

    @property
    def baseline(self) -> JobFolder:
        """The copy of what the judge reads of the legacy twin's run."""
        return JobFolder(self.path / "baseline")

    @property
    def complete(self) -> bool:
        """Whether the last step was made."""
        return (self.path / "complete").exists()

    @property
    def runs(self) -> list[Path]:
        """The folders of logs, those of the last run last."""
        return sorted(
            (path for path in (self.path / "logs").glob("*") if _IS_RUN.fullmatch(path.name)),
            key=lambda path: [int(part) for part in path.name.split("-")],
        )

    def keep_baseline(self, legacy: JobFolder) -> None:
        """Copy what the judge reads of the legacy twin's run, which may go on or be removed."""
        shutil.rmtree(self.baseline.path, ignore_errors=True)
        for source, copy in (
            (legacy.path / "job.json", self.baseline.path / "job.json"),
            (legacy.metrics, self.baseline.metrics),
        ):
            if source.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)

    def record(self) -> JobRecord:
        """Read ``job.json``; ``ConfigError`` if the folder is none of a job."""
        path = self.path / "job.json"
        if not is_file(path):
            raise ConfigError(
                f"{self.path}: no job.json: No such file; name the folder of a job that "
                f"`rlconform launch` has written"
            )
        text = read_text(path, "name the folder of a job that `rlconform launch` has written")
        return parse_model(JobRecord, text, str(path), strict=False)


def create(recipe: Recipe, overrides: Sequence[str], site: Site, path: Path) -> JobFolder:
    """Write the folder of a recipe, or take one with the same recipe to go on in it.

    ``ConfigError`` if the folder has another recipe or other options.
    """
    folder = JobFolder(path.absolute())
    config = OmegaConf.to_yaml(OmegaConf.create(recipe.tree))
    if folder.script.exists():
        if (folder.path / "config.yaml").read_text("utf-8") != config:
            raise ConfigError(
                f"{path} holds {folder.record().recipe} with other options: name another --out"
            )
    else:
        (folder.path / "logs").mkdir(parents=True, exist_ok=True)
        snapshot = take_snapshot(folder.path / "code")
        record = _record(recipe, overrides, snapshot.commit, snapshot.modified)
        (folder.path / "job.json").write_text(record.model_dump_json(indent=2) + "\n", "utf-8")
        (folder.path / "config.yaml").write_text(config, "utf-8")
    node_script = slurm_file("ray_node.sh").read_text("utf-8")
    (folder.path / "ray_node.sh").write_text(node_script, "utf-8")
    (folder.path / "setup.sh").write_text("\n".join([*site.setup, ""]), "utf-8")
    folder.script.write_text(render(recipe, site, folder.path), "utf-8")
    return folder


def _record(
    recipe: Recipe, overrides: Sequence[str], commit: str, modified: tuple[str, ...]
) -> JobRecord:
    values: dict[str, Any] = {"job": recipe.job, "gates": recipe.gates}
    return JobRecord(
        recipe=str(recipe.name),
        overrides=tuple(overrides),
        steps=recipe.steps,
        runs=recipe.job.runs(recipe.steps),
        gpu_hours=recipe.gpu_hours,
        commit=commit,
        modified=modified,
        rlconform=__version__,
        versions={k: v for k, v in installed_versions(_PACKAGES).items() if v != "not installed"},
        **values,
    )
