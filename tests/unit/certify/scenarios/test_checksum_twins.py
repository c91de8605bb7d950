"""The values of ``checksum_twins`` differ and have the checksum that is named."""

from __future__ import annotations

import zlib

import pytest

from rlconform.certify.scenarios.checksum_twins import CHECKSUMS, POLYNOMIALS, checksum_twins


def cyclic_checksum(message: bytes, polynomial: int, bits: int) -> int:
    """Compute a reflected CRC bit by bit, from its definition."""
    rest = (1 << bits) - 1
    for byte in message:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (polynomial if rest & 1 else 0)
    return rest ^ (1 << bits) - 1


def checksum_of(name: str, message: bytes) -> int:
    return (
        cyclic_checksum(message, *POLYNOMIALS[name])
        if name in POLYNOMIALS
        else zlib.adler32(message)
    )


def test_the_checksum_of_the_test_is_the_one_that_zlib_computes() -> None:
    assert checksum_of("crc32", b"123456789") == zlib.crc32(b"123456789")
    assert checksum_of("crc32c", b"123456789") == 0xE3069283
    assert checksum_of("crc64", b"123456789") == 0x995DC9BBDF1939FA


@pytest.mark.parametrize("before", [b"", b"int64 (8,)"], ids=["alone", "behind_a_header"])
@pytest.mark.parametrize("name", CHECKSUMS)
def test_twins_differ_and_have_the_same_checksum(name: str, before: bytes) -> None:
    value, twin = (before + bytes(each.tolist()) for each in checksum_twins(name, 500))
    assert value != twin
    assert checksum_of(name, value) == checksum_of(name, twin)
    others = [each for each in CHECKSUMS if each != name]
    assert all(checksum_of(each, value) != checksum_of(each, twin) for each in others)
