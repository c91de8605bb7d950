"""Sessions: ``nox -s unit functional`` on every change, ``mutants`` for the suite's own power.

``certify`` holds one plane to the contract, ``lint`` is for the code.
"""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "unit", "functional"]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "venv"

# Most of what torch brings is never imported: what is, Python compiles then.
CONSTRAINTS = ("--no-compile", "-c", "ci/constraints.txt")

# Another order each time (pytest prints its seed), in two processes: no test may lean on another.
ANY_ORDER = ("-n", "2", "--dist", "worksteal", "--random-order")


@nox.session
def unit(session: nox.Session) -> None:
    """One process: the kit's own tests, and the contract on the embedded plane."""
    session.install(*CONSTRAINTS, "-e", ".[dev,tq]")
    session.run("pytest", "suites/unit", *ANY_ORDER, *session.posargs)


@nox.session
def functional(session: nox.Session) -> None:
    """Real planes and several processes: certifications from end to end."""
    session.run("bash", "ci/system_packages.sh", external=True)
    session.install(*CONSTRAINTS, "-e", ".[dev,tq,mooncake]")
    session.run("pytest", "suites/functional", *ANY_ORDER, *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """The suite on trial: every planted defect is caught, by the ids that it breaks alone."""
    session.install(*CONSTRAINTS, "-e", ".[dev,tq]")
    session.run("rlconform", "self-test", *session.posargs)


@nox.session
def certify(session: nox.Session) -> None:
    """``nox -s certify -- TARGET [options]``: certify a plane in an environment of its own."""
    session.run("bash", "ci/system_packages.sh", external=True)
    session.install(*CONSTRAINTS, "-e", ".[tq,mooncake]")
    session.run("rlconform", "certify", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff's rules and format, mypy's types."""
    session.install(*CONSTRAINTS, "-e", ".[dev,tq]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
