"""Options of a certification as arguments of the pytest that runs its checks."""

from __future__ import annotations

import json

from rlconform.certify.options import CertifyOptions


def process_arguments(
    options: CertifyOptions, only: str, hangs: str, tries_round_trip: bool
) -> list[str]:
    """Arguments of one test process.

    Args:
        options: What to run.
        only: Path of a file with the ids of the checks to run; "" for all.
        hangs: The calls that have hung, as JSON.
        tries_round_trip: Whether it tries the plane's simplest round trip after opening it.
    """
    arguments = ["--target", options.spec, "--target-config", json.dumps(dict(options.config))]
    arguments += ["--seed", str(options.seed), "--turns", str(options.turns)]
    arguments += ["--effort", str(options.effort)]
    arguments += ["--requirements", ",".join(options.requirements)]
    arguments += ["--hangs", hangs]
    if not options.races:
        arguments.append("--no-races")
    if options.check_timeout is not None:
        arguments += ["--check-timeout", str(options.check_timeout)]
    if options.level:
        arguments += ["--level", options.level]
    if not tries_round_trip:
        arguments.append("--no-health")
    if options.select:
        arguments += ["-k", options.select]
    if only:
        arguments += ["--only", only]
    return arguments
