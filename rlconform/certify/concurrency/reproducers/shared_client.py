"""Race of threads: six threads put and read rows, each in another dtype, on one client."""

from __future__ import annotations

from functools import partial

import torch
from tensordict import TensorDict

from rlconform.certify.concurrency.reproducers.race import Race, get

EXPECTED = "each thread to read what it put"
DTYPES = [torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64]


def run(race: Race) -> None:
    """Put rows and read them back in each thread."""

    def put_and_read(number: int, dtype: torch.dtype) -> None:
        field = f"f{number}"
        ids = [f"t{number}_{k}" for k in range(3)]
        for n in race.rounds():
            rows = torch.full((3, 8), number + n % 50).to(dtype)
            batch = TensorDict({field: rows}, batch_size=[3])
            race.client.put_samples(sample_ids=ids, partition_id="p", fields=batch)
            got = get(race.client, ids, [field])[field]
            if got.dtype != dtype or not torch.equal(got, rows):
                race.report(f"thread {number} put {rows[0]}, read {got[0]}")

    race.run(*[partial(put_and_read, number, dtype) for number, dtype in enumerate(DTYPES)])
