"""Finds ``suites/``, ``fixtures/``, ``reference_configs/``, ``ci/``, in a checkout or a wheel.

In a checkout these folders are next to the package; in a wheel they are inside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rlconform.contract.errors import ConfigError

Resource = Literal["suites", "fixtures", "reference_configs", "ci"]

_PACKAGE = Path(__file__).resolve().parent


def resource_dir(name: Resource) -> Path:
    """The folder ``name``, from an installed wheel or from the checkout that holds the package.

    Raises:
        ConfigError: The installation has neither.
    """
    homes = (_PACKAGE / "_data", _PACKAGE.parent)
    for home in homes:
        if (home / name).is_dir():
            return home / name
    raise ConfigError(
        f"this installation of rlconform lacks its folder {name!r} (looked in "
        f"{' and '.join(str(home) for home in homes)}); install it again with pip"
    )
