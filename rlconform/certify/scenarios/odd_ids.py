"""Sample ids that a plane may confuse, shorten or refuse."""

from __future__ import annotations

ODD_IDS = [
    "a", "a ", " a", "A", "ä", "a\u0308", "样本_g0", "🙂", "a/b", "a//b", "a:b", "a@b", "a_b",
    "a b",
    "a%2Fb", "../a", "*", "None", "{}", "x", "train", "a\nb", "a\tb", '"', "'", "\\",
    "k" * 1024, "k" * 1023 + "l",
    # alike when normalised
    "\u00e9", "e\u0301", "\ufb01", "fi", "\u212a", "K", "\u00df", "ss", "SS",
    # spellings of one UUID
    "9f1c2e5a-3b74-4d0e-8a61-c0ffee15900d", "9f1c2e5a3b744d0e8a61c0ffee15900d",
    "9F1C2E5A3B744D0E8A61C0FFEE15900D", "{9f1c2e5a-3b74-4d0e-8a61-c0ffee15900d}",
]  # fmt: skip

#: Ids that are equal as numbers.
NUMBERS = ["0", "00", "-0", "1", "01", "001", "1.0", "+1", "1e0", "0x1"]

#: Two ids with the same value of a common hash.
COLLISIONS = {
    "crc32": ("plumless", "buckeroo"),
    "adler32": ("u14_g0", "u40_g1"),
    "fnv1a": ("u16132_g9", "u17595_g12"),
    "java": ("AaAa", "BBBB"),
    "djb2": ("aB", "b!"),
}
