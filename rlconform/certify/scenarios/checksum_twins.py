"""Pairs of unlike values with equal checksums, which a plane may take for one another.

A plane that stores equal values once, or that asks whether a value has changed, may know values by
a checksum of 32 or 64 bits. Of 100,000 values, about two have the same 32 bits by chance; these two
have the same checksum always, whatever comes before or behind them in the message.
"""

from __future__ import annotations

import torch

#: Bits that may be flipped anywhere in a message without a change of its cyclic checksum: the
#: generator polynomial, in the order in which the checksum takes the bits of a byte.
POLYNOMIALS = {
    "crc32": (0xEDB88320, 32),
    "crc32c": (0x82F63B78, 32),
    "crc64": (0xC96C5795D7870F42, 64),
}
#: Differences of following bytes whose sum is zero, and the sum weighted by place too.
BALANCED = (1, -2, 1)
#: Checksums for which ``checksum_twins`` has values.
CHECKSUMS = (*POLYNOMIALS, "adler32")


def checksum_twins(checksum: str, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two values of ``size`` bytes, uint8, that differ and have the same checksum."""
    value = 16 + torch.arange(size) % 101
    twin, at = value.clone(), size // 2
    if checksum in POLYNOMIALS:
        polynomial, bits = POLYNOMIALS[checksum]
        flipped = (polynomial << 1 | 1).to_bytes(bits // 8 + 1, "little")
        twin[at : at + len(flipped)] ^= torch.tensor([*flipped])
    else:
        twin[at : at + len(BALANCED)] += torch.tensor(BALANCED)
    return value.to(torch.uint8), twin.to(torch.uint8)
