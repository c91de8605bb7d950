"""``Judge`` judges the answers in a sequence of calls, and holds what its partitions share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rlconform.certify.assertions.expect import expect
from rlconform.certify.properties.excerpt import FailureReport
from rlconform.certify.properties.reference_model import PartitionModel
from rlconform.certify.properties.requirement_sequences import Kind, SequenceProfile
from rlconform.certify.properties.row_values import RowValues
from rlconform.certify.properties.runner import PropertyRunner

#: The requirement whose violation may explain a wrong answer of this kind.
LEANS_ON: Mapping[Kind, tuple[str, ...]] = {
    "tags": ("TAG-01",),
    "lengths": ("TAG-01",),
    "timeouts": ("CLAIM-05",),
}


class Unjudged(Exception):
    """Ends a sequence: a call raised an error that only another profile judges."""


@dataclass
class SequenceStats:
    """Totals of all sequences of a run."""

    compared: int = 0  # number of answers that were judged
    unjudged: FailureReport | None = None  # ended a sequence, though the profile doesn't judge it


@dataclass
class Judge:
    """Judges the answers of one sequence by its profile."""

    runner: PropertyRunner
    profile: SequenceProfile
    stats: SequenceStats
    models: list[PartitionModel] = field(default_factory=list)  # of the sequence's partitions
    values: RowValues = field(default_factory=RowValues)  # of the rows of all partitions
    written: bool = False  # whether anything was put since the last clear
    waited: bool = False  # whether a claim waited without result

    @contextmanager
    def calling(self, kind: Kind) -> Iterator[None]:
        """Raise the block's error if calls of this kind are judged; else end the sequence."""
        try:
            yield
        except Exception as error:
            if self.judges(kind) or not self.runner.raised_by_plane(error):
                raise
            raise Unjudged(error) from error

    def judges(self, *kinds: Kind) -> bool:
        """Whether the profile judges any of these kinds."""
        return not {"put", *self.profile.judged}.isdisjoint(kinds)

    def expect(self, kind: Kind, right: bool, expected: str, got: str) -> None:
        """Expect an answer to be right, if the profile judges its kind."""
        if self.judges(kind):
            self.stats.compared += 1
            expect(right, expected, got, leans_on=LEANS_ON.get(kind, ()))

    def in_scope(self, model: PartitionModel, sample_id: str) -> bool:
        """Whether the profile judges this row."""
        match self.profile.scope:
            case "all":
                return True
            case "reused":
                return model.cleared[sample_id] > 0
            case "shared":
                known = [m.cleared[sample_id] > 0 or sample_id in m.rows for m in self.models]
                return all(known) and len(known) > 1
