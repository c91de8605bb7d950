"""What each method of a client owes: a sentence on what to write, and the requirements."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from types import MappingProxyType

from rlconform.contract import CLIENT_METHODS, DataPlaneClient, load_requirements

#: By method: what its author writes, and the sections of the requirements that it owes.
_TO_WRITE: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "register_partition": (
            "remember the partition's tasks, and its fields if the plane needs them; registering "
            "again keeps the rows",
            ("REG",),
        ),
        "put_samples": (
            "store a copy of every column and tag of these rows at once, or nothing and an error, "
            "then return a meta",
            ("PUT", "TAG"),
        ),
        "get_samples": (
            "return the rows in the order asked; LookupError for an id or field that is not there",
            ("GET",),
        ),
        "claim_meta": (
            "give each ready row to a task once, oldest first; wait for batch_size if blocking",
            ("CLAIM",),
        ),
        "get_data": ("return get_samples of the meta's rows and fields", ("GET",)),
        "check_consumption_status": (
            "return whether something was produced and every task has claimed all of it",
            ("STAT",),
        ),
        "clear_samples": (
            "drop these rows with their tags and claims; None drops what this process put",
            ("CLEAR",),
        ),
        "close": ("release the plane, wake those who wait; closing twice is no error", ("LIFE",)),
    }
)

#: Annotations of the protocol, as a client writes them that imports nothing of rlconform.
_OWN_TYPES = MappingProxyType({"list[Tags]": "list[dict[str, Any]]", "BatchMeta": "Meta"})


@dataclass(frozen=True)
class OwedMethod:
    """One method of the client: its source, and what is to be written."""

    name: str
    parameters: list[str]  # with annotations and defaults
    returns: str
    summary: str  # the first sentence of the protocol's documentation
    to_write: str
    requirements: Sequence[tuple[str, str, str]]  # id, MUST or SHOULD, title

    @property
    def ids(self) -> str:
        """The ids from the first to the last, in words."""
        named = [requirement for requirement, _, _ in self.requirements]
        sections = dict.fromkeys(one.partition("-")[0] for one in named)
        of = {each: [one for one in named if one.startswith(f"{each}-")] for each in sections}
        return ", ".join(f"{ids[0]} to {ids[-1]}" for ids in of.values())

    @property
    def error_lines(self) -> list[str]:
        """The message of the method until it is written, as string literals that fit a line."""
        lines = wrap(f"{self.name}: {self.to_write} ({self.ids})", 80)
        return [json.dumps(f"{line} ") for line in lines[:-1]] + [json.dumps(lines[-1])]


def owed_methods() -> list[OwedMethod]:
    """Return the client's methods in the protocol's order."""
    return [_owed(name) for name in CLIENT_METHODS]


def _owed(name: str) -> OwedMethod:
    to_write, sections = _TO_WRITE[name]
    function = getattr(DataPlaneClient, name)
    signature = inspect.signature(function)
    owed = [
        (row.id, row.level, row.title)
        for row in load_requirements().values()
        if row.published and row.scope == "plane" and row.id.partition("-")[0] in sections
    ]
    summary = inspect.cleandoc(function.__doc__).partition("\n")[0]
    parameters = [_own_types(str(one)) for one in signature.parameters.values()]
    returns = _own_types(str(signature.return_annotation))
    return OwedMethod(name, parameters, returns, summary, to_write, owed)


def _own_types(text: str) -> str:
    text = text.replace("'", "")  # annotations of the protocol are strings
    for theirs, own in _OWN_TYPES.items():
        text = text.replace(theirs, own)
    return text
