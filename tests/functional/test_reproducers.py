"""For each kind of failure, the exit code of the certification's script shows the defect.

Each script results from the certification of a broken plane. On this plane it exits with 1 and
prints the expected and the actual result last; on a correct plane it exits with 0.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlconform.selftest.shared_ray import SharedRay

pytestmark = pytest.mark.timeout(900)

CALLS = "These calls show no violation; running the check that failed."


class Kind(NamedTuple):
    """A kind of failure, and a script of it.

    Attributes:
        spec: A plane that shows it.
        select: The check, as for ``-k``.
        id: The requirement.
        holds: A text that the script contains.
        by_calls: Whether the calls of the script show it, so that no check is needed.
        right: A plane that does not show it.
    """

    spec: str
    select: str
    id: str
    holds: tuple[str, ...]
    by_calls: bool = True
    right: str = "memory"


#: Kinds that show in a plane of one process.
KINDS = {
    "data_where_an_error_is_due": Kind(
        "rlconform.mutants.memory.get:DropsUnknownIds",
        "test_one_unknown_id_among_many_raises",
        "GET-04",
        ("labeled_column(", "expect_rejection(lambda: plane.result_of(r"),
    ),
    "error_where_none_is_due": Kind(
        "rlconform.mutants.memory.put_views:PutGradRefused",
        "test_columns_of_unusual_layout",
        "PUT-08",
        (".requires_grad_()", "    plane.result_of(r"),
    ),
    "result_of_get_data": Kind(
        "rlconform.mutants.memory.get_by_meta:GetDataFieldsOfMetaAdded",
        "test_select_fields_override_the_fields_of_the_meta",
        "GET-11",
        ("client.get_data, KVBatchMeta(",),
    ),
    "rows_that_differ": Kind(
        "rlconform.mutants.memory.put_views:PutStridesIgnored",
        "test_columns_of_unusual_layout",
        "PUT-08",
        (".as_strided(", "expect_column(r"),
    ),
    "odd_leaves": Kind(
        "rlconform.mutants.memory.put_objects:PutNestedLeavesDropped",
        "test_a_leaf_that_is_no_column_is_rejected and tensorclass",
        "PUT-25",
        ("tensorclass_like('Images', ",),
        by_calls=False,
    ),
    "sparse_leaf": Kind(
        "rlconform.mutants.memory.put_objects:PutSparseValuesOnly",
        "test_a_leaf_that_is_no_column_is_rejected and sparse",
        "PUT-25",
        ("torch.sparse_coo_tensor(",),
        by_calls=False,
    ),
    "threads": Kind(
        "rlconform.mutants.memory.claim_blocking:ClaimWakesForNewRowsOnly",
        "test_a_put_wakes_only_the_claim_that_requires_its_field",
        "CLAIM-05",
        ("= begin(client.claim_meta, ", "= finish(r"),
        by_calls=False,
    ),
    "generated_example": Kind(
        "rlconform.mutants.memory.put_values:PutEmptyShapeForgotten",
        "test_put_values_properties",
        "PUT-04",
        ("seed=0",),
    ),
    "history_of_calls": Kind(
        "rlconform.mutants.memory.claim_once:ClaimCursorCountsFromFront",
        "test_a_cleared_id_is_reused_without_its_old_data",
        "CLEAR-04",
        ("seed=0",),
        by_calls=False,
    ),
    "race_of_threads": Kind(
        "rlconform.mutants.memory.thread_races:PutBufferSharedByThreads",
        "test_threads_put_and_read_different_dtypes_at_once",
        "LIFE-05",
        ("races=True", "race.run("),
        by_calls=False,
    ),
    "memory": Kind(
        "rlconform.mutants.memory.put_views:PutViewKeepsItsStorage",
        "test_a_view_does_not_keep_its_base_in_memory",
        "PUT-10",
        ("# Not all calls of the check can be written down",),
        by_calls=False,
    ),
    "plane_opened_anew": Kind(
        "rlconform.mutants.memory.life:CloseKeepsTagsInModule",
        "test_a_new_plane_holds_nothing_of_the_old",
        "LIFE-04",
        ("client = plane.reopen()",),
        by_calls=False,
    ),
    "hang": Kind(
        "hostile:sleeping_claim",
        "test_only_ready_rows_are_claimed",
        "CLAIM-01",
        ("attempt(client.claim_meta, ",),
    ),
    "crash": Kind(
        "hostile:segfaulting_get",
        "test_rows_are_returned_in_the_order_asked",
        "GET-01",
        ("attempt(client.get_samples, ",),
    ),
    "exit": Kind(
        "hostile:exiting_put",
        "test_rows_are_returned_in_the_order_asked",
        "GET-01",
        ("attempt(client.put_samples, ",),
    ),
}

#: Kinds whose scripts work as those of another kind do; ``nox -s robustness`` runs them.
ALIKE = {
    "error_where_none_is_due",
    "result_of_get_data",
    "odd_leaves",
    "sparse_leaf",
    "memory",
    "exit",
    "close_of_an_attached_client",
    "race_of_processes",
}


def marked(names: Iterable[str]) -> list[Any]:
    """Return the names as parameters, with the mark of those that another session runs."""
    return [
        pytest.param(name, marks=[pytest.mark.robustness] if name in ALIKE else [])
        for name in names
    ]


#: Kinds that show between processes.
SHARED = {
    "attached_client": Kind(
        "rlconform.mutants.ray_store.life:AttachedClaimIgnoresEarlierPuts",
        "test_a_late_client_sees_what_was_put_before",
        "LIFE-06",
        ("= plane.attach()  # in a process of its own",),
        right="ray_store",
    ),
    "close_of_an_attached_client": Kind(
        "rlconform.mutants.ray_store.life:AttachedCloseEndsPlane",
        "test_an_attached_clients_close_leaves_the_plane_up",
        "LIFE-02",
        ("actor1 = plane.attach()", "attempt(actor1.close)"),
        by_calls=False,
        right="ray_store",
    ),
    "race_of_processes": Kind(
        "rlconform.mutants.ray_store.claim_races:ClaimChosenThenMarked",
        "test_processes_claim_every_row_once_for_each_task",
        "CLAIM-02",
        ("races=True", "other = plane.attach()"),
        by_calls=False,
        right="ray_store",
    ),
}


def ran(script: Path, planes: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and standard output of a script that runs in the planes' folder."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=planes, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def tell_apart(done: Any, planes: Path, kind: Kind) -> None:
    """The script of this certification fails on the broken plane and succeeds on the right one."""
    assert done.outcomes()[kind.id] in {"FAIL", "TIMEOUT", "CRASH"}, done.report["notes"]
    script = done.out / "reproducers" / f"{kind.id}.py"
    text = script.read_text("utf-8")
    assert [part for part in kind.holds if part not in text] == [], text

    code, said = ran(script, planes)
    lines = said.splitlines()
    assert code == 1, said
    assert (lines[-2].partition(" ")[0], lines[-1].partition(" ")[0]) == ("expected", "got"), said
    if kind.by_calls:
        assert CALLS not in said

    code, said = ran(script, planes, kind.right)
    lines = said.splitlines()
    assert code == 0, said
    assert (lines[-2].partition(" ")[0], lines[-1].partition(" ")[0]) == ("expected", "got"), said
    assert CALLS in said


@pytest.mark.parametrize("name", marked(KINDS))
def test_a_reproducer_tells_a_broken_plane_from_a_right_one(
    certify_here: Callable[..., Any], planes: Path, name: str
) -> None:
    kind = KINDS[name]
    tell_apart(certify_here(kind.spec, kind.select), planes, kind)


def test_a_reproducer_starts_the_processes_that_it_needs(
    certify: Callable[..., Any], planes: Path
) -> None:
    kind = SHARED["attached_client"]
    tell_apart(certify(kind.spec, "-k", kind.select), planes, kind)


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[Mapping[str, str]]:
    """Variables with which certifications and scripts share a Ray and its actors."""
    with closing(SharedRay()) as ray:
        yield ray.environment()


@pytest.mark.xdist_group("reproducers")
@pytest.mark.parametrize("name", marked(sorted(SHARED.keys() - {"attached_client"})))
def test_a_reproducer_of_several_processes_tells_a_broken_plane_from_a_right_one(
    certify: Callable[..., Any],
    planes: Path,
    shared_ray: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    for variable, value in shared_ray.items():
        monkeypatch.setenv(variable, value)
    kind = SHARED[name]
    tell_apart(certify(kind.spec, "-k", kind.select), planes, kind)
