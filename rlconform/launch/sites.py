"""``Site``: what differs between clusters, read from a file of ``key: value`` lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt, ValidationError

from rlconform._files import first_error
from rlconform._yaml import read_mapping, resolved
from rlconform.contract import ConfigError
from rlconform.grpo.config.base import ConfigModel

#: Ports that a job takes from ``Site.first_port``, see ``ci/slurm/ray.sbatch``.
PORTS_PER_JOB = 200


class Site(ConfigModel):
    """Options of one cluster."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    #: Whether the cluster counts GPUs as generic resources; without, a job takes whole nodes.
    gres: bool = True
    exclusive: bool = True
    #: Image for pyxis, such as ``/images/rlconform.sqsh``; null runs on the nodes themselves.
    container_image: str | None = None
    container_mounts: tuple[str, ...] = Field(default=(), strict=False)
    #: The Python of the nodes, or of the image.
    python: str = "python3"
    #: Lines of shell that each node runs first, such as ``module load cuda``.
    setup: tuple[str, ...] = Field(default=(), strict=False)
    environment: dict[str, str] = Field(default_factory=dict)
    #: Ending of the host names of the network to use, such as ``-ib0``: nodes announce the address
    #: of this name. Empty for the addresses that Slurm has.
    host_suffix: str = ""
    #: First port of Ray's; the processes of a job take 200.
    first_port: Annotated[int, Field(ge=1024, le=32000)] = 12000
    #: Whether a stopped or preempted job is queued again under its number; else a recipe of
    #: several runs is a chain of jobs.
    requeue: bool = True
    max_restarts: PositiveInt = 20
    #: Further options of sbatch, such as ``--comment=nightly``.
    sbatch: tuple[Annotated[str, Field(pattern=r"^--[a-z][\w-]*(=.*)?$")], ...] = Field(
        default=(), strict=False
    )


def read_site(path: Path | None) -> Site:
    """Read a site's file; the defaults without one. ``ConfigError`` names the wrong key."""
    if path is None:
        return Site()
    try:
        return Site.model_validate(resolved(read_mapping(path), str(path)))
    except ValidationError as invalid:
        raise ConfigError(f"{path}: {first_error(invalid)}") from None
