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
    "b'a'", "YQ==", "0x1f", "<a",
]  # fmt: skip
#: What a reader of text takes for a value of another type.
_TYPED = [
    "nan", "NaN", "inf", "-Infinity", "None", "null", "NULL", "true", "True", "yes", "off", "0",
    "1", "01", "1.0", "1e3", "-0", "1_000", "\u0661", "[]", "{}", "[1]", '{"a": 1}', "()",
    "2026-01-01", "12:30", "1h",
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
