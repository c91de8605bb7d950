"""Texts that a plane may cut, strip, decode, escape, or take for another value.

They come back unchanged as tags and their keys, within ids, and within objects.
"""

from __future__ import annotations

#: What text formats, shells, templates and databases rewrite.
_REWRITTEN = [
    "%20", "a%2Fb", "%41", "%zz", "100%", "a+b", "a&amp;b", "&lt;", "&#65;", "<b>", "\\n",
    "\\u0041", "\\x41", "\\", "\\\\", "a\\", "%s", "%(a)s", "{a}", "{{a}}", "${HOME}", "$HOME", "~",
    "`a`", "*", "?", "[a]", "--", "#a", ";", ",", "a,b", "a;b", "a=b", "a: b",
    "|", "'", '"', "''", '""', "'a'", '"a"', "../a", "a/b", "a//b", "@a", "!a", "=1+1",
    "b'a'", "YQ==", "0x1f", "<a", "a.b", "$.a", "a[0]", "a->b",
]  # fmt: skip
#: What a reader of text takes for a value of another type.
_TYPED = [
    "nan", "NaN", "inf", "-Infinity", "None", "null", "NULL", "true", "True", "yes", "off", "0",
    "1", "01", "1.0", "1e3", "-0", "1_000", "\u0661", "[]", "{}", "[1]", '{"a": 1}', "()",
    "2026-01-01", "2026-01-01T00:00:00Z", "12:30", "1h", "+1", "1.", ".5", "1,000", "0b1", "0o7",
    "0x1F", "1e-3", "127.0.0.1", "127.1", "6f1e9cd2-8a3b-4c5d-9e0f-112233445566",
    "6f1e9cd28a3b4c5d9e0f112233445566", "6F1E9CD2-8A3B-4C5D-9E0F-112233445566",
    "{6f1e9cd2-8a3b-4c5d-9e0f-112233445566}", "urn:uuid:6f1e9cd2-8a3b-4c5d-9e0f-112233445566",
]  # fmt: skip
#: Characters that are stripped, normalised, or end a text or a line.
_STRIPPED = [
    "", " ", " a", "a ", "a  b", "\t", "\n", "a\n", "\na", "a\r\nb", "a\rb", "\0", "a\0", "a\0b",
    "\0a", "\x1b[0m", "\x1f", "\x7f", "\x85", "a\u2028b", "\u00a0", "\u00ad", "\u200b", "\u202eab",
    "\ufeffa", "\ufffd", "\u00e9", "e\u0301", "\ufb01", "\u212a", "K", "k", "\u0130", "ß", "ss",
    "\uff21", "🙂", "👩\u200d🔬", "\U0010ffff",
]  # fmt: skip

#: No two are equal, so that they can be keys.
ODD_TEXTS = [*_REWRITTEN, *_TYPED, *_STRIPPED]
