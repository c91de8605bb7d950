"""CLEAR-07: reads and puts concurrent with clears damage no other row."""

from __future__ import annotations

from tensordict import TensorDictBase

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect_equal,
    row_difference,
    rows_in,
    show_row,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_row
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall


@requirement("CLEAR-07", race=True)
def test_reads_that_race_clears_return_the_row_asked_for_or_raise(part: PartitionUnderTest) -> None:
    def ids_of_round(n: int) -> list[str]:
        """Return three ids that the rounds before and after do not use."""
        return [f"r{3 * (n % 3) + k}" for k in range(3)]

    def put_and_clear() -> None:
        for n in part.rounds(300):
            part.put_labeled(ids_of_round(n))
            if n:
                part.clear(ids_of_round(n - 1))
        part.clear(ids_of_round(n))

    writer = BackgroundCall(put_and_clear, "the writer")
    n = 0
    while not writer.finished.is_set():
        n += 1
        asked = ids_of_round(n)[:2]
        try:
            batch = part.get(asked, "x")
        except ContractViolation:
            raise
        except Exception:  # noqa: BLE001 - an error is right here, another row's bytes are not
            writer.wait_briefly()
            continue
        _expect_own_rows(part, asked, batch)
    writer.result(part.timeouts.operation)


@requirement("CLEAR-07", race=True)
def test_puts_that_race_clears_change_no_other_row(part: PartitionUnderTest) -> None:
    kept: list[str] = []
    for n in part.rounds(40):
        doomed, keeper = f"doomed{n}", f"kept{n}"
        part.put_labeled([doomed], "x")
        writer = BackgroundCall(
            lambda i=doomed: part.put_labeled([i], "x", "y", version=1), "a put on a cleared row"
        )
        part.clear([doomed])
        part.put_labeled([keeper], "x", "y")  # may reuse the cleared row's slot
        kept.append(keeper)
        _finish(writer, part.timeouts.operation)
        part.clear([doomed])
    for sample_id in kept:
        _expect_kept(part, sample_id)


def _finish(writer: BackgroundCall, timeout_s: float) -> None:
    """Wait for a put concurrent with a clear: it may raise but must not hang."""
    try:
        writer.result(timeout_s)
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - see above
        return


def _expect_kept(part: PartitionUnderTest, sample_id: str) -> None:
    try:
        batch = part.get([sample_id], "x", "y")
    except ContractViolation:
        raise
    except Exception as error:
        raise ContractViolation(
            f"{sample_id!r}, never cleared, to be readable after puts raced clears of other rows",
            f"{type(error).__name__}: {error}",
        ) from error
    for field in ("x", "y"):
        rows = rows_in(batch, field)
        expect_equal(len(rows), 1, f"rows of {field} for one id")
        want = labeled_row(part.id, sample_id, field)
        if row_difference(rows[0], want):
            raise ContractViolation(
                f"{field} of {sample_id!r} to be its own bytes", f"bytes of {show_row(rows[0])}"
            )


def _expect_own_rows(part: PartitionUnderTest, ids: list[str], batch: TensorDictBase) -> None:
    """Expect only requested rows; a check of GET-06 covers rows that are missing."""
    own = [labeled_row(part.id, sample_id, "x") for sample_id in ids]
    rows = rows_in(batch, "x") if "x" in batch.keys() else []  # noqa: SIM118
    for index, row in enumerate(rows):
        allowed = own[index : index + 1] if len(rows) == len(own) else own
        if all(row_difference(row, want) for want in allowed):
            raise ContractViolation(f"x of {ids}, or an error", f"bytes of {show_row(row)}")
