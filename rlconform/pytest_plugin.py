"""The pytest plugin that is loaded wherever rlconform is installed, and its public options.

    pytest --rlconform-target=acme.plane:TARGET -k GET-04 --pdb

Without that option it adds a few lines to ``pytest --help`` and imports nothing but pytest. With it
pytest loads the plugin of the checks, the one that ``rlconform certify`` runs in test processes.
"""

from __future__ import annotations

import pytest

#: The plugin of the checks. It imports torch.
CHECKS_PLUGIN = "rlconform.certify.plugin.plugin"
#: ``rlconform.contract.LEVELS``, not imported from there: this module imports pytest alone.
LEVELS = ("unit", "functional", "e2e", "durability")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name a plane and the checks to run on it."""
    group = parser.getgroup("rlconform", "conformance of an RL data plane")
    group.addoption(
        "--rlconform-target",
        default=None,
        metavar="TARGET",
        help="run the contract's checks on this plane, named as for `rlconform certify`",
    )
    group.addoption("--rlconform-config", metavar="FILE", help="YAML file for the target")
    group.addoption(
        "--rlconform-level",
        default=None,
        choices=LEVELS,
        help="default: the level that the target declares",
    )
    group.addoption("--rlconform-seed", type=int, default=0, help="start of the generated examples")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Load the plugin of the checks, before the command line is parsed for the last time."""
    if early_config.known_args_namespace.rlconform_target is not None:
        early_config.pluginmanager.import_plugin(CHECKS_PLUGIN)
