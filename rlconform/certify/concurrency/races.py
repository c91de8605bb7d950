"""Races as plain client calls in threads, for scripts that a vendor can run; see ``race_script``.

Each function makes the calls of one race and reports what a correct plane never shows. A script
contains one of these functions between a header and a footer.
"""

from __future__ import annotations

import random
import time
from functools import partial

import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import tensors_equal
from rlconform.certify.concurrency.race import Race, claim, get, put
from rlconform.contract import DataPlaneClient


def claims(race: Race) -> None:
    """Two consumers claim while a producer puts rows with tags: each row must be claimed once."""
    claimed: list[str] = []
    produced: list[str] = []

    def produce() -> None:
        for n in race.rounds(2000):
            ids = [f"r{n}_{k}" for k in range(4)]
            put(race.client, ids, n, [{"n": n}] * 4)
            produced.extend(ids)

    def consume(client: DataPlaneClient) -> None:
        while race.running():
            meta = claim(client)
            claimed.extend(meta.sample_ids)
            all_tags = meta.tags or [{} for _ in meta.sample_ids]
            for sample_id, tags in zip(meta.sample_ids, all_tags, strict=False):
                if tags != {"n": int(sample_id[1:].split("_")[0])}:
                    race.report(f"{sample_id} was claimed with tags {tags}")

    race.run(produce, lambda: consume(race.client), lambda: consume(race.other))
    race.claim_rest(claimed)
    if lost := sorted(set(produced) - set(claimed)):
        race.report(f"never claimed: {lost}")
    race.finish("each row claimed once, with its tags")


def field_writes(race: Race) -> None:
    """Two clients write one field each and a thread puts tags, while a consumer claims the rows."""
    all_ids = [f"r{n}" for n in range(400)]
    race.register(["x", "y", "z"], ["train", "late"])
    put(race.client, all_ids, 0, [{"weight_version": 1}] * len(all_ids), fields=["x"])
    claimed: list[str] = []

    def write(client: DataPlaneClient, field: str) -> None:
        for sample_id in all_ids:
            put(client, [sample_id], 0, fields=[field])

    def tag() -> None:
        for sample_id in all_ids:
            put(race.client, [sample_id], 0, [{"std": 0.5}], fields=())

    def consume() -> None:
        while len(set(claimed)) < len(all_ids) and race.running():
            claimed.extend(claim(race.client).sample_ids)

    race.run(lambda: write(race.client, "y"), lambda: write(race.other, "z"), tag, consume)
    race.claim_rest(claimed)
    for sample_id in all_ids:
        try:
            get(race.client, [sample_id], ["x", "y", "z"])
        except LookupError as error:
            race.report(f"x, y and z of {sample_id} were put, but can't be read: {error}")
    meta = claim(race.client, "late", 400)
    for sample_id, tags in zip(meta.sample_ids, meta.tags or [], strict=False):
        if tags != {"weight_version": 1, "std": 0.5}:
            race.report(f"{sample_id} got the tag std=0.5, and has {tags}")
    race.finish("each write, tag and claim to keep what the others did")


def tag_writes(race: Race) -> None:
    """Two clients put a tag each on the same rows; then the rows are claimed with their tags."""
    all_ids = [f"r{n}" for n in range(200)]
    put(race.client, all_ids, 0)

    def tag(client: DataPlaneClient, key: str) -> None:
        for n, sample_id in enumerate(all_ids):
            put(client, [sample_id], n, [{key: n}], fields=())

    race.run(lambda: tag(race.client, "std"), lambda: tag(race.other, "reward"))
    while (meta := claim(race.client)).sample_ids:
        for sample_id, tags in zip(meta.sample_ids, meta.tags or [], strict=False):
            n = int(sample_id[1:])
            if tags != {"std": n, "reward": n}:
                race.report(f"{sample_id} got the tags std={n} and reward={n}, and has {tags}")
    race.finish("the tags of both clients to stay")


def new_fields(race: Race) -> None:
    """Two clients put fields that were never put before, while one claims: no call may raise."""

    def produce(client: DataPlaneClient, name: str) -> None:
        for n in race.rounds(500):
            fields = ["x", f"{name}{n}"]
            try:
                put(client, [f"{name}{n}"], n, fields=fields)
                get(client, [f"{name}{n}"], fields)
            except Exception as error:  # noqa: BLE001 - a plane may raise anything
                race.report(f"{type(error).__name__}: {error}")

    def consume() -> None:
        while race.running():
            try:
                claim(race.client)
            except Exception as error:  # noqa: BLE001 - a plane may raise anything
                race.report(f"{type(error).__name__}: {error}")

    race.run(lambda: produce(race.client, "a"), lambda: produce(race.other, "b"), consume)
    race.finish("puts, reads and claims during puts of new fields to return")


def overwrite(race: Race) -> None:
    """One client overwrites a row while another reads it; each put writes equal x and y."""
    put(race.client, ["r"], 0)
    written = [0]

    def write() -> None:
        for n in race.rounds():
            put(race.client, ["r"], n + 1)
            written[0] = n + 1

    def read() -> None:
        while race.running():
            least = written[0]
            batch = get(race.other, ["r"], ["x", "y"])
            x, y = (set(batch[field].flatten().tolist()) for field in ("x", "y"))
            if x != y or len(x) > 1:
                race.report(f"one put wrote x and y alike, read were {x} and {y}")
            if min(x) < least:
                race.report(f"read {min(x)} after {least} was acknowledged")

    race.run(write, read)
    race.finish("what one put wrote to be read together, once it is acknowledged")


def read_after_claim(race: Race) -> None:
    """One client puts rows; another claims them and reads each row as soon as it is claimed."""

    def write() -> None:
        for n in race.rounds():
            put(race.client, [f"r{n}"], n)

    def read() -> None:
        while race.running():
            for sample_id in claim(race.other).sample_ids:
                try:
                    get(race.other, [sample_id], ["x", "y"])
                except LookupError as error:
                    race.report(f"{sample_id} was claimed, but can't be read: {error}")

    race.run(write, read)
    race.finish("what is claimed to be readable")


def put_clear(race: Race) -> None:
    """Two clients put and clear rows, each id with its own value, while threads read and claim."""
    value_of = {f"c{k}": k for k in range(8)}

    def churn(client: DataPlaneClient) -> None:
        while race.running():
            ids = random.sample(sorted(value_of), 2)
            for sample_id in ids:
                put(client, [sample_id], value_of[sample_id])
            put(client, [f"kept{time.monotonic_ns()}"], -1)
            client.clear_samples(sample_ids=ids, partition_id="p")

    def read() -> None:
        while race.running():
            sample_id = random.choice(sorted(value_of))
            try:
                row = get(race.other, [sample_id], ["x"])["x"].flatten().tolist()
            except LookupError:
                continue  # it was cleared
            if set(row) != {value_of[sample_id]}:
                race.report(f"row of {sample_id} read as {row}, not {value_of[sample_id]}")

    def consume() -> None:
        while race.running():
            ids: list[str | None] = [*claim(race.client).sample_ids]
            if None in ids:
                race.report(f"a claim named {ids}")

    race.run(lambda: churn(race.client), lambda: churn(race.other), read, consume)
    race.finish("reads of a row to give its own values, and claims of rows that are there")


def registrations(race: Race) -> None:
    """One client repeatedly registers a partition without rows; another claims from it."""

    def register() -> None:
        while race.running():
            race.register(["x", "y"], ["train"])

    def consume() -> None:
        while race.running():
            if ids := claim(race.other).sample_ids:
                race.report(f"claimed {ids} in a partition in which nothing was put")

    race.run(register, consume)
    race.finish("no row claimable where nothing was put")


def status(race: Race) -> None:
    """One client reads the status without a pause, another after each put and after all claims."""
    put(race.client, ["first"], 0)

    def consumed(client: DataPlaneClient) -> bool:
        return client.check_consumption_status(partition_id="p", task_names=["train"])

    def produce() -> None:
        for n in race.rounds():
            put(race.client, [f"r{n}"], n)
            if done := consumed(race.other):
                race.report(f"r{n} was put, nobody has claimed it, and the status is {done}")
            while not claim(race.client).sample_ids:
                pass
            while claim(race.client).sample_ids:
                pass
            if not (done := consumed(race.other)):
                race.report(f"everything up to r{n} was claimed, and the status is {done}")

    def ask() -> None:
        while race.running():
            consumed(race.client)

    race.run(produce, ask)
    race.finish("a status that fits the puts and claims that have returned")


def shared_client(race: Race) -> None:
    """Six threads put and read rows through one client, each thread in another dtype."""
    dtypes = (
        torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64
    )  # fmt: skip

    def put_and_read(number: int, dtype: torch.dtype) -> None:
        field = f"f{number}"
        ids = [f"t{number}_{k}" for k in range(3)]
        for n in race.rounds():
            rows = torch.full((3, 8), number + n % 50).to(dtype)
            batch = TensorDict({field: rows}, batch_size=[3])
            race.client.put_samples(sample_ids=ids, partition_id="p", fields=batch)
            got = get(race.client, ids, [field])[field]
            if got.dtype != dtype or not tensors_equal(got, rows):
                race.report(f"thread {number} put {rows[0]}, read {got[0]}")

    race.run(*[partial(put_and_read, number, dtype) for number, dtype in enumerate(dtypes)])
    race.finish("each thread to read what it put")
