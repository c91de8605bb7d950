"""The option ``--ray-address`` of the commands that start Ray: they use a running one instead."""

from __future__ import annotations

import os
import re
from typing import Annotated

import typer

from rlconform._env import SHARED_RAY
from rlconform.cli.console import fail

RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Use the Ray at this address; its token, if it asks for one, is in RAY_AUTH_TOKEN.",
        show_default=False,
    ),
]


def use_ray_at(address: str | None) -> None:
    """Let this process and its children use the Ray at ``address``; None changes nothing."""
    if address is not None and not re.fullmatch(r"(ray://)?\S+:\d+", address):
        fail(f"--ray-address {address!r}: expected HOST:PORT, as 10.0.0.1:6379")
    if address is not None:
        os.environ[SHARED_RAY] = address
