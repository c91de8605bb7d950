"""The races of the histories as plain client calls in threads: what a vendor can run by hand.

Each script opens the plane as its owner and attaches a second client in another process. What it
prints is the defect; on a right plane it prints nothing. A script that saw nothing runs the check.
"""

from __future__ import annotations

from rlconform.certify.reproduce.render import ATTACH, Origin, header

_HEADER = """import random, threading, time
from collections import Counter

import torch
from tensordict import TensorDict

client = plane.open()
{other}client.register_partition(
    partition_id="p", fields=["x", "y"], num_samples=64, consumer_tasks=["train"]
)
end = time.monotonic() + 10
seen, running = [], []


def going():
    return time.monotonic() < end


def put(by, ids, n, tags=None, fields=("x", "y")):
    columns = {{field: torch.full((len(ids), 4), n) for field in fields}}
    batch = TensorDict(columns, batch_size=[len(ids)]) if columns else None
    by.put_samples(sample_ids=ids, partition_id="p", fields=batch, tags=tags)


def claim(by):
    return by.claim_meta(
        partition_id="p", task_name="train", required_fields=["x"], batch_size=4, blocking=False
    )


def get(by, ids, fields):
    return by.get_samples(sample_ids=ids, partition_id="p", select_fields=fields)


def say(what):
    if len(seen) < 10 and what not in seen:
        seen.append(what)
        print(what)


"""

_FOOTER = """

for role in [{roles}]:
    running.append(plane.start_role(role))
plane.join(running)
{after}if seen:
    plane.violated({expected!r}, "; ".join(seen))
plane.end()
"""

_CLAIMS = """
handed, made = [], []


def produce():
    for n in range(2000):
        if going():
            put(client, [f"r{n}_{k}" for k in range(4)], n, [{"n": n}] * 4)
            made.extend(f"r{n}_{k}" for k in range(4))


def consume(by):
    while going():
        meta = claim(by)
        handed.extend(meta.sample_ids)
        for sample_id, tags in zip(meta.sample_ids, meta.tags or [{}] * len(meta.sample_ids)):
            if tags != {"n": int(sample_id[1:].split("_")[0])}:
                say(f"{sample_id} was claimed with tags {tags}")
"""
_CLAIMS_AFTER = """while ids := claim(client).sample_ids:
    handed.extend(ids)
twice = sorted(i for i, times in Counter(handed).items() if times > 1)
say(f"claimed twice: {twice}") if twice else None
lost = sorted(set(made) - set(handed))
say(f"never claimed: {lost}") if lost else None
"""

_CHURN = """
owner_of = {f"c{k}": k for k in range(8)}  # a row's values tell whose it is


def churn(by):
    while going():
        ids = random.sample(sorted(owner_of), 2)
        for sample_id in ids:
            put(by, [sample_id], owner_of[sample_id])
        put(by, [f"kept{time.monotonic_ns()}"], -1)
        by.clear_samples(sample_ids=ids, partition_id="p")


def read():
    while going():
        sample_id = random.choice(sorted(owner_of))
        try:
            came = get(other, [sample_id], ["x"])["x"].flatten().tolist()
        except LookupError:
            continue  # it was cleared
        if set(came) != {owner_of[sample_id]}:
            say(f"row of {sample_id} read as {came}, not {owner_of[sample_id]}")


def consume():
    while going():
        ids = claim(client).sample_ids
        if None in ids:
            say(f"a claim named {ids}")
"""

_OVERWRITE = """
put(client, ["r"], 0)
written = [0]


def write():
    for n in range(1, 10**9):
        if not going():
            break
        put(client, ["r"], n)
        written[0] = n


def read():
    while going():
        least = written[0]
        batch = get(other, ["r"], ["x", "y"])
        x, y = (set(batch[field].flatten().tolist()) for field in ("x", "y"))
        if x != y or len(x) > 1:
            say(f"one put wrote x and y alike, read were {x} and {y}")
        if min(x) < least:
            say(f"read {min(x)} after {least} was acknowledged")
"""

_FIRST = """

def write():
    for n in range(10**9):
        if not going():
            break
        put(client, [f"r{n}"], n)


def read():
    while going():
        for sample_id in claim(other).sample_ids:
            try:
                get(other, [sample_id], ["x", "y"])
            except LookupError as error:
                say(f"{sample_id} was claimed, but can't be read: {error}")
"""

_REGISTER = """

def register():
    while going():
        client.register_partition(
            partition_id="p", fields=["x", "y"], num_samples=64, consumer_tasks=["train"]
        )


def consume():
    while going():
        ids = claim(other).sample_ids
        if ids:
            say(f"claimed {ids} in a partition in which nothing was put")
"""

_STAMP = """
IDS = [f"r{n}" for n in range(200)]
put(client, IDS, 0)


def stamp(by, key):
    for n, sample_id in enumerate(IDS):
        put(by, [sample_id], n, [{key: n}], fields=())
"""
_STAMP_AFTER = """while (meta := claim(client)).sample_ids:
    for sample_id, tags in zip(meta.sample_ids, meta.tags):
        n = int(sample_id[1:])
        if tags != {"std": n, "reward": n}:
            say(f"{sample_id} was stamped std={n} and reward={n}, and has {tags}")
"""

_FIELDS = """

def produce(by, name):
    for n in range(500):
        if going():
            fields = ("x", f"{name}{n}")
            try:
                put(by, [f"{name}{n}"], n, fields=fields)
                get(by, [f"{name}{n}"], list(fields))
            except Exception as error:
                say(f"{type(error).__name__}: {error}")


def consume():
    while going():
        try:
            claim(client)
        except Exception as error:
            say(f"{type(error).__name__}: {error}")
"""

_STATUS = """
put(client, ["first"], 0)


def produce():
    for n in range(10**9):
        if not going():
            break
        put(client, [f"r{n}"], n)
        done = other.check_consumption_status(partition_id="p", task_names=["train"])
        if done:
            say(f"r{n} was put, nobody has claimed it, and the status is {done}")
        while not (ids := claim(client).sample_ids):
            pass
        while claim(client).sample_ids:
            pass
        done = other.check_consumption_status(partition_id="p", task_names=["train"])
        if not done:
            say(f"everything up to r{n} was claimed, and the status is {done}")


def ask():
    while going():
        client.check_consumption_status(partition_id="p", task_names=["train"])
"""

_THREADS = """

def work(number, dtype):
    for n in range(10**9):
        if not going():
            break
        rows = torch.full((3, 8), number + n % 50).to(dtype)
        ids = [f"t{number}_{k}" for k in range(3)]
        batch = TensorDict({f"f{number}": rows}, batch_size=[3])
        client.put_samples(sample_ids=ids, partition_id="p", fields=batch)
        came = get(client, ids, [f"f{number}"])[f"f{number}"]
        if came.dtype != dtype or not torch.equal(came, rows):
            say(f"thread {number} put {rows[0]}, read {came[0]}")
"""

_WRITE = """
IDS = [f"r{n}" for n in range(400)]
client.register_partition(
    partition_id="p", fields=["x", "y", "z"], num_samples=400, consumer_tasks=["train", "late"]
)
put(client, IDS, 0, [{"weight_version": 1}] * len(IDS), fields=("x",))
handed = []


def write(by, field):
    for sample_id in IDS:
        put(by, [sample_id], 0, fields=(field,))


def stamp():
    for sample_id in IDS:
        put(client, [sample_id], 0, [{"std": 0.5}], fields=())


def consume():
    while len(set(handed)) < len(IDS) and going():
        handed.extend(claim(client).sample_ids)
"""
_WRITE_AFTER = """while ids := claim(client).sample_ids:
    handed.extend(ids)
twice = sorted(i for i, times in Counter(handed).items() if times > 1)
say(f"claimed twice: {twice}") if twice else None
for sample_id in IDS:
    try:
        get(client, [sample_id], ["x", "y", "z"])
    except LookupError as error:
        say(f"x, y and z of {sample_id} were put, but can't be read: {error}")
meta = client.claim_meta(
    partition_id="p", task_name="late", required_fields=["x"], batch_size=400, blocking=False
)
for sample_id, tags in zip(meta.sample_ids, meta.tags):
    if tags != {"weight_version": 1, "std": 0.5}:
        say(f"{sample_id} was stamped std=0.5, and has {tags}")
"""

#: Body, roles and what is looked at in the end, by the race's name.
RACES: dict[str, tuple[str, str, str]] = {
    "claims": (_CLAIMS, "produce, lambda: consume(client), lambda: consume(other)", _CLAIMS_AFTER),
    "churn": (_CHURN, "lambda: churn(client), lambda: churn(other), read, consume", ""),
    "overwrite": (_OVERWRITE, "write, read", ""),
    "read_after_claim": (_FIRST, "write, read", ""),
    "register": (_REGISTER, "register, consume", ""),
    "tag_writes": (
        _STAMP,
        'lambda: stamp(client, "std"), lambda: stamp(other, "reward")',
        _STAMP_AFTER,
    ),
    "new_fields": (
        _FIELDS,
        'lambda: produce(client, "a"), lambda: produce(other, "b"), consume',
        "",
    ),
    "write_back": (
        _WRITE,
        'lambda: write(client, "y"), lambda: write(other, "z"), stamp, consume',
        _WRITE_AFTER,
    ),
    "status": (_STATUS, "produce, ask", ""),
    "threads": (
        _THREADS,
        "*[lambda n=n, d=d: work(n, d) for n, d in enumerate("
        "[torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64])]",
        "",
    ),
}


#: What a right plane does, by the race's name.
EXPECTED = {
    "claims": "each row claimed once, with its tags",
    "churn": "reads of a row to give its own values, and claims of rows that are there",
    "overwrite": "what one put wrote to be read together, once it is acknowledged",
    "read_after_claim": "what is claimed to be readable",
    "register": "no row claimable where nothing was put",
    "tag_writes": "the tags of both stamps to stay",
    "new_fields": "puts and claims beside new fields to return",
    "write_back": "each write, stamp and claim to keep what the others did",
    "status": "a status that fits the puts and claims that have returned",
    "threads": "each thread to read what it put",
}


def race_script(origin: Origin, race: str, evidence: str) -> str:
    """A script that runs the race for ten seconds; where it shows nothing, the check decides."""
    body, roles, after = RACES[race]
    other = ""
    if "other" in body + roles:
        threads = origin.check.startswith("unit/")
        other = "other = client  # shared by threads\n" if threads else f"other = {ATTACH}\n"
    footer = _FOOTER.format(roles=roles, after=after, expected=EXPECTED[race])
    return (
        header(origin, evidence, races=True)
        + _HEADER.format(other=other)
        + body.lstrip("\n")
        + footer
    )
