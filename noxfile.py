"""Sessions: ``nox -s unit functional`` on every change.

``mutants`` tries the suite's own power, ``e2e`` whole GRPO runs; ``certify`` holds one plane to the
contract, ``lint`` is for the code.
"""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "unit", "functional"]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "venv"

# Most of what torch brings is never imported: what is, Python compiles then, once.
CONSTRAINTS = ("--no-compile", "-c", "ci/constraints.txt")

# Another order each time (pytest prints its seed), in processes side by side: no test may lean on
# another.
ANY_ORDER = ("--dist", "worksteal", "--random-order", "--durations", "10")


def install(session: nox.Session, *extras: str) -> None:
    """Install the checkout. The checks start hundreds of processes: let them share bytecode."""
    session.env["PYTHONDONTWRITEBYTECODE"] = ""  # where it is set, each would compile torch anew
    session.env["OMP_NUM_THREADS"] = "1"  # as rlconform does: see its THREADS
    session.install(*CONSTRAINTS, "-e", f".[{','.join(extras)}]")


@nox.session
def unit(session: nox.Session) -> None:
    """One process: the kit's own tests, and the contract on the embedded plane."""
    install(session, "dev", "tq", "grpo")
    session.run("pytest", "suites/unit", "tests/unit", "-n", "2", *ANY_ORDER, *session.posargs)


@nox.session
def functional(session: nox.Session) -> None:
    """Real planes and several processes: certifications from end to end."""
    session.run("bash", "ci/system_packages.sh", external=True)
    install(session, "dev", "tq", "mooncake")
    # three on two cores: more than half of what these tests take is waiting
    session.run(
        "pytest", "suites/functional", "tests/functional", "-n", "3", *ANY_ORDER, *session.posargs
    )


@nox.session
def e2e(session: nox.Session) -> None:
    """Whole GRPO runs: the legacy trainer against the plane trainer, learning, resuming."""
    session.run("bash", "ci/system_packages.sh", external=True)
    install(session, "dev", "tq", "mooncake", "grpo")
    session.run("pytest", "suites/e2e", "tests/e2e", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """The suite on trial: each requirement still catches the defects that it must, races too."""
    install(session, "dev", "tq")
    if session.posargs:
        session.run("rlconform", "self-test", *session.posargs)
        return
    session.run("rlconform", "self-test", "--gate", "--jobs", "6")  # much of it is waiting
    # 20 seeds give the rates in docs/races.md; 10 tell in half the time that they still hold. One
    # at a time: two keep two cores busy, and then a play of half a second may hardly get a turn.
    races = ("--races", "--seeds", "10", "--jobs", "1", "--out", "rlconform-self-test/races")
    session.run("rlconform", "self-test", *races)


@nox.session
def certify(session: nox.Session) -> None:
    """``nox -s certify -- TARGET [options]``: certify a plane in an environment of its own."""
    session.run("bash", "ci/system_packages.sh", external=True)
    install(session, "tq", "mooncake", "grpo")
    session.run("rlconform", "certify", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff's rules and format, mypy's types."""
    install(session, "dev", "tq", "grpo")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
