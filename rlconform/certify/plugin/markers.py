"""``@requirement``: the decorator that names the requirement which a check tests."""

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
    scattered: bool = True,
    roles: bool = True,
    changes_results: bool = False,
) -> pytest.MarkDecorator:
    """Mark a check with the requirement that it tests.

    Args:
        requirement_id: The requirement's id.
        capability: The capability that the check needs, if the requirement names several; if
            the requirement names one, the check needs it anyway.
        ends_plane: The check closes the owner's client. It runs after the others, and a fresh plane
            is opened for the next check.
        race: The check waits long for an unlucky interleaving of threads. It is left out of runs
            that only look for defects that occur every time.
        patience: Seconds that the check may take, even if the target allows fewer.
        leans_on: Requirements that the whole check relies on: if the plane breaks one too,
            that may cause the failure. ``leaning_on`` does the same for one assertion.
        scattered: If the plane serves several processes, the check runs a second time, with its
            calls made by several. False for a check that measures one process.
        roles: In its second run, one process may make all calls of a kind. False for a check of
            many random calls: a random process makes each.
        changes_results: The check itself changes results of calls: don't blame the plane for it.

    Raises:
        ValueError: Unknown requirement, or a capability that the requirement doesn't name.
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
        scattered=scattered,
        roles=roles,
        changes_results=changes_results,
    )
