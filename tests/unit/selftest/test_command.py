"""``rlconform self-test``: what it lists, and what it refuses."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from rlconform.cli import app
from rlconform.mutants.mutant import Mutant
from rlconform.mutants.registry import all_mutants


def planes(mutants: dict[str, tuple[str, Mutant]]) -> dict[str, Mutant]:
    return {name: mutant for name, (_, mutant) in mutants.items()}


#: The command keeps the address that it is given in the environment; the runner restores this.
NO_RAY = {"RLCONFORM_RAY": None}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--mutant", "no_such"], "no mutant 'no_such'"),
        (["--mutant", "xyzzy"], "rlconform self-test --list shows them"),
        (["--gate", "--races"], "nothing to try"),
        (["--list", "--gate", "--races"], "nothing to try"),
        (["--races", "--mutant", "drops_unknown_ids"], "nothing to try"),
        (["--mutant", "announces_loopback"], "announces_loopback: only several hosts show it"),
        (["--ray-address", "10.0.0.1:1", "--mutant", "drops_unknown_ids"], "on several hosts"),
        (["--ray-address", "10.0.0.1:1", "--races"], "on several hosts"),
    ],
)
def test_a_self_test_of_nothing_is_refused(options: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["self-test", *options], env=NO_RAY)
    assert done.exit_code == 2
    assert says in done.stderr


def test_the_list_tells_of_each_mutant_that_the_other_options_leave() -> None:
    done = CliRunner().invoke(app, ["self-test", "--list", "--races"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    named = {line.split()[0] for line in done.output.splitlines()[1:] if line.strip()}
    assert named >= {name for name, mutant in planes(all_mutants()).items() if mutant.chance}
    assert "processes_get_reads_reused_slot" in done.output
    assert "CLEAR-07" in done.output
    assert "drops_unknown_ids" not in done.output


@pytest.mark.parametrize("options", [[], ["--gate"]])
def test_planes_for_several_hosts_are_named_where_they_are_not_tried(options: list[str]) -> None:
    done = CliRunner().invoke(app, ["self-test", "--list", *options], env={"COLUMNS": "200"})
    (line,) = [line for line in done.output.splitlines() if "announces_loopback" in line]
    assert line.startswith("not tried, needs --ray-address of several hosts")


def test_only_planes_for_several_hosts_are_tried_on_them() -> None:
    options = ["self-test", "--list", "--ray-address", "10.0.0.1:6379"]
    done = CliRunner().invoke(app, options, env=NO_RAY | {"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    named = {line.split()[0] for line in done.output.splitlines()[1:] if line.strip()}
    assert named == {name for name, one in planes(all_mutants()).items() if one.several_hosts}
    assert "not tried" not in done.output
