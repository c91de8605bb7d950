"""``Race``: two clients of a plane, and threads that call them for some seconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch
from tensordict import TensorDict

from rlconform.certify.reproduce import Reproducer
from rlconform.contract import BatchMeta, DataPlaneClient, Tags

#: Most findings that a script prints.
MOST_REPORTS = 10


class Race:
    """A race on the partition ``p``, which has the fields x and y and the task ``train``.

    ``client`` is the owner's client. ``other`` is a client attached in another process, or in a
    race of threads the owner's client again.
    """

    def __init__(self, plane: Reproducer, client: Any, other: Any, seconds: float) -> None:
        self.client: DataPlaneClient = client
        self.other: DataPlaneClient = other
        self._plane = plane
        self._reports: list[str] = []
        self.register(["x", "y"], ["train"])
        self._end = time.monotonic() + seconds

    def register(self, fields: list[str], tasks: list[str]) -> None:
        """Register the partition for up to 400 rows."""
        self.client.register_partition(
            partition_id="p", fields=fields, num_samples=400, consumer_tasks=tasks
        )

    def running(self) -> bool:
        """Whether the race still has time."""
        return time.monotonic() < self._end

    def rounds(self, most: int = 10**9) -> Iterator[int]:
        """Number rounds until the time of the race is over."""
        for number in range(most):
            if not self.running():
                return
            yield number

    def run(self, *functions: Callable[[], None]) -> None:
        """Run the functions at the same time, each in a thread, until all have ended."""
        self._plane.run_roles(functions)

    def claim_rest(self, claimed: list[str]) -> None:
        """Claim until no row is left, add the ids to ``claimed``, and report rows claimed twice."""
        while ids := claim(self.client).sample_ids:
            claimed += ids
        if twice := sorted(i for i, times in Counter(claimed).items() if times > 1):
            self.report(f"claimed twice: {twice}")

    def report(self, finding: str) -> None:
        """Print a finding that a correct plane never shows, and keep it for ``finish``."""
        if len(self._reports) < MOST_REPORTS and finding not in self._reports:
            self._reports.append(finding)
            print(finding)  # noqa: T201

    def finish(self, expected: str) -> NoReturn:
        """End the script, with a violation if anything was reported."""
        if self._reports:
            self._plane.violated(expected, "; ".join(self._reports))
        self._plane.end()


def put(
    client: DataPlaneClient,
    ids: Sequence[str],
    n: int,
    tags: list[Tags] | None = None,
    fields: Sequence[str] = ("x", "y"),
) -> None:
    """Put rows that hold ``n`` four times in each field; without fields, put only tags."""
    columns = {field: torch.full((len(ids), 4), n) for field in fields}
    batch = TensorDict(columns, batch_size=[len(ids)]) if columns else None
    client.put_samples(sample_ids=list(ids), partition_id="p", fields=batch, tags=tags)


def claim(client: DataPlaneClient, task: str = "train", batch_size: int = 4) -> BatchMeta:
    """Claim rows that have the field x, without blocking."""
    return client.claim_meta(
        partition_id="p",
        task_name=task,
        required_fields=["x"],
        batch_size=batch_size,
        blocking=False,
    )


def get(client: DataPlaneClient, ids: Sequence[str], fields: Sequence[str]) -> Any:
    """Read fields of rows."""
    return client.get_samples(sample_ids=list(ids), partition_id="p", select_fields=list(fields))
