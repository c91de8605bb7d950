"""Makes hostile files of good ones: seeded, so that each can be made again from its number.

sample ─┬─ bytes: flipped, cut off, repeated, taken out, spliced with another, tokens put in
        └─ values of JSON: another type, a huge one, gone, doubled, swapped, deeper
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

#: A page that shows it as markup would run it.
SCRIPT = "<script>planted()</script>"
BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
)
#: What is put into a file anywhere.
TOKENS: Sequence[bytes] = (
    b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\n", b'"', b"'", b"{", b"}",
    b"[", b"]", b":", b",", b"#", b"NaN", b"-Infinity", b"1e999", b"-0", b"9" * 5000, b"null",
    b"true", b'"\\ud800"', b"\\u0000", b"[" * 3000, b'{"a":' * 3000, b"a." * 3000, b"x" * 100_000,
    SCRIPT.encode(), b"../../../etc/passwd", b"/etc/passwd", b"file:///etc/passwd",
    b"!!python/object/apply:os.system ['touch planted']", b"!!int x", b"!!binary '*'", b"&a [*a]",
    b"<<: *a", BOMB.encode(), b"${a}", b"${oc.env:HOME}", b"${", b"${${a}}", b"\x1b[2J",
    b"\x80\x04cos\nsystem\n(S'touch planted'\ntR.", b"PK\x03\x04", b"(a+)+$",
    b"[/red]",
)  # fmt: skip
#: What takes the place of a value.
VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400,
    0.5, -0.0, 1e308, 5e-324, "", " ", "0", "x" * 100_000, SCRIPT, "../../../etc/passwd", "\0",
    "\ud800", "\x1b[2J", "a\nb", "NaN", "[/red]", "[bold", "${a}", "(a+)+$", "[",
    [], {}, [[]], [None], {"": None},
    {"__class__": "x"}, "2026-99-99", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59",
)  # fmt: skip

Bytes = Callable[[random.Random, bytes, bytes], bytes]


def mutated(rng: random.Random, samples: Sequence[bytes]) -> bytes:
    """Return a mutation of one of the samples; now and then an unchanged one, or noise."""
    sample, other = rng.choice(samples), rng.choice(samples)
    kind = rng.random()
    if kind < 0.02:
        return sample
    if kind < 0.04:
        return rng.randbytes(rng.randrange(200))
    if kind < 0.55 and (changed := _of_values(rng, sample)) is not None:
        return changed
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        sample = rng.choice(_OF_BYTES)(rng, sample, other)
    return sample


def _flip(rng: random.Random, data: bytes, _: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 10))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: random.Random, data: bytes, _: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _put_in(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(TOKENS) + data[at:]


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 5, 50, 500)))


def _take_out(rng: random.Random, data: bytes, _: bytes) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def _repeat(rng: random.Random, data: bytes, _: bytes) -> bytes:
    start, end = _span(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 2, 30)) + data[end:]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _lines(rng: random.Random, data: bytes, other: bytes) -> bytes:
    lines, others = data.split(b"\n"), other.split(b"\n")
    at = rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, rng.choice(lines))
        case 2:
            lines[at] = rng.choice(others)
        case _:
            rng.shuffle(lines)
    return b"\n".join(lines)


def _word(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Replace what stands behind a colon or an equals sign, as in YAML and TOML."""
    places = [at for at, byte in enumerate(data) if byte in b":="]
    if not places:
        return data
    at = rng.choice(places) + 1
    end = data.find(b"\n", at)
    return data[:at] + b" " + rng.choice(TOKENS) + data[len(data) if end < 0 else end :]


_OF_BYTES: Sequence[Bytes] = (_flip, _cut, _put_in, _take_out, _repeat, _splice, _lines, _word)


def _of_values(rng: random.Random, sample: bytes) -> bytes | None:
    """Change values of a JSON text, or of some lines of JSON; None if it is neither."""
    try:
        return _dumped(_changed(rng, json.loads(sample)))
    except ValueError:
        pass
    lines = sample.splitlines()
    try:
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(lines))
            lines[at] = _dumped(_changed(rng, json.loads(lines[at])))
    except ValueError:  # neither; randrange's of no line as well
        return None
    return b"\n".join(lines) + b"\n"


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def _changed(rng: random.Random, tree: Any) -> Any:
    root = [tree]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        holder, key = _place(rng, root)
        match rng.randrange(9):
            case 0 if holder is not root:
                del holder[key]
            case 1 if isinstance(holder, list) and holder is not root:
                holder.insert(key, holder[key])
            case 2 if isinstance(holder, dict):
                holder[str(rng.choice(VALUES))[:50]] = holder.pop(key)
            case 3:
                other_holder, other_key = _place(rng, root)
                holder[key] = json.loads(json.dumps(other_holder[other_key]))
            case 4:
                holder[key] = _nested(rng, holder[key])
            case 5 if isinstance(holder[key], int | float):
                holder[key] = rng.choice((-1, 0, 2, holder[key] + 1, -holder[key], 2**62, 1e300))
            case _:
                holder[key] = rng.choice(VALUES)
    return root[0]


def _place(rng: random.Random, root: list[Any]) -> tuple[Any, Any]:
    """Return a container and a key or index of it, at any depth."""
    holder, key = root, 0
    while isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.85:
        holder = holder[key]
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    return holder, key


def _nested(rng: random.Random, value: Any) -> Any:
    for _ in range(rng.choice((1, 3, 70, 400))):
        value = rng.choice(([value], {"a": value}))
    return value
