"""``@requirement``: the decorator that says which requirement a check checks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rlconform.contract import load_requirements


def requirement(
    requirement_id: str,
    *,
    capability: str = "",
    ends_plane: bool = False,
    race: bool = False,
    patience: float = 0.0,
    leans_on: Sequence[str] = (),
) -> pytest.MarkDecorator:
    """Mark a check with the requirement that it checks.

    Args:
        requirement_id: Its id.
        capability: The capability that the check needs, if the requirement names several; a check
            of a requirement with one capability needs that one.
        ends_plane: The check closes the owner's client. It runs after the others, and a fresh plane
            is opened for the next check.
        race: The check waits long for an unlucky interleaving of threads. It is left out of runs
            that only look for defects that always show.
        patience: Seconds that the check may take even if the target allows less.
        leans_on: Requirements that the whole check relies on: if one of them is broken too,
            a failure may follow from it. ``leaning_on`` does the same for one assertion.

    Raises:
        ValueError: No such requirement, or a capability that it doesn't name.
    """
    known = load_requirements()
    for named in (requirement_id, *leans_on):
        if named not in known:
            raise ValueError(f"no requirement {named!r} in requirements.toml")
    row = known[requirement_id]
    if capability and capability not in row.capability:
        raise ValueError(f"{requirement_id} does not depend on capability {capability!r}")
    if not capability and len(row.capability) > 1:
        raise ValueError(f"{requirement_id} depends on {row.capability}: say which one is checked")
    needs = capability or next(iter(row.capability), "")
    return pytest.mark.requirement(
        requirement_id,
        capability=needs,
        ends_plane=ends_plane,
        race=race,
        patience=patience,
        leans_on=tuple(leans_on),
    )
