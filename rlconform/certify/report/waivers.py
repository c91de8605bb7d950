"""Loads and applies waivers: failures allowed until a date. Waived checks still run.

[[waiver]]
id = "CLEAR-07"
reason = "index reuse is fixed upstream in the next release"
issue = "https://example.org/tracker/137"
match = "bytes of another row"      # a regular expression found in the failure
expires = 2027-03-01
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from rlconform._files import LARGEST_BY_HAND, excerpt, parse_toml, read_text
from rlconform.certify.report.pattern_search import PatternTooSlow, found_in
from rlconform.certify.results import BROKEN, Outcome, RequirementResult
from rlconform.contract import ConfigError, did_you_mean, load_requirements


@dataclass(frozen=True)
class Waiver:
    """A requirement that may fail, with a matching text and until a date."""

    id: str
    reason: str
    issue: str
    match: str
    expires: date


def load_waivers(path: Path) -> list[Waiver]:
    """Read a waiver file; raise ``ConfigError`` if it can't be read or a key is wrong."""
    hint = "`rlconform waivers --write` makes such a file"
    loaded = parse_toml(read_text(path, hint, LARGEST_BY_HAND), str(path))
    if unknown := loaded.keys() - {"waiver"}:
        names = excerpt(", ".join(sorted(unknown)))
        raise ConfigError(f"{path}: unknown {names}: write [[waiver]]")
    rows = loaded.get("waiver", [])
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: [waiver] is one table: write [[waiver]]")
    return [_parse(path, row) for row in rows]


def apply_waivers(
    results: Iterable[RequirementResult], waivers: Sequence[Waiver], today: date
) -> tuple[list[RequirementResult], list[str]]:
    """Turn waived failures into DEVIATION; also return a text for each waiver that is invalid."""
    problems: list[str] = []
    by_id = {result.id: result for result in results}
    for waiver in waivers:
        result = by_id.get(waiver.id)
        if waiver.expires < today:
            problems.append(f"waiver {waiver.id} expired on {waiver.expires}")
        elif result is None or result.outcome not in BROKEN:
            status = "is not in this profile" if result is None else f"is {result.outcome}"
            problems.append(f"waiver {waiver.id} is stale: the requirement {status}; remove it")
        elif problem := _mismatch(waiver, result):
            problems.append(f"waiver {waiver.id} {problem}")
        else:
            reason = f"waived until {waiver.expires} ({waiver.reason}; {waiver.issue}): "
            by_id[waiver.id] = replace(
                result, outcome=Outcome.DEVIATION, reason=reason + result.reason
            )
    return list(by_id.values()), problems


def _mismatch(waiver: Waiver, result: RequirementResult) -> str:
    """Return why the waiver does not match each of the requirement's failures; "" if it does."""
    failures = result.failures or [result.reason]
    try:
        found = found_in(waiver.match, failures)
    except PatternTooSlow as error:
        return f"does not match a failure: {waiver.match!r} gave {error}; simplify it"
    if all(found):
        return ""
    other = failures[found.index(False)]
    return f"does not match a failure: no {waiver.match!r} in {other!r}"


def _parse(path: Path, row: Any) -> Waiver:
    if not isinstance(row, dict):
        raise ConfigError(f"{path}: waiver {excerpt(repr(row))} is not a table: write [[waiver]]")
    where = f"{path}: waiver {excerpt(str(row.get('id', '?')))}"
    names = {field.name for field in fields(Waiver)}
    if row.keys() != names:
        wrong = {"missing": names - row.keys(), "unknown": row.keys() - names}
        parts = [f"{kind}: {', '.join(sorted(keys))}" for kind, keys in wrong.items() if keys]
        raise ConfigError(f"{where}: {excerpt('; '.join(parts))}")
    if type(row["expires"]) is not date:  # a datetime is a date too, but can't be compared with one
        raise ConfigError(f"{where}: expires must be a date such as 2027-03-01")
    for name in ("id", "reason", "issue", "match"):
        if not isinstance(row[name], str) or not row[name].strip():
            raise ConfigError(f"{where}: {name} must not be empty, and must be text")
    if row["id"] not in (known := load_requirements()):
        name = excerpt(row["id"])
        raise ConfigError(f"{path}: no requirement {name!r}{did_you_mean(name, known)}")
    try:
        with warnings.catch_warnings(action="ignore"):  # of syntax that a later Python may change
            re.compile(row["match"])
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{where}: match is not a regular expression: {error}") from error
    return Waiver(**row)
