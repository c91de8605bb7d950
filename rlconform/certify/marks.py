"""The one decorator of a check: which requirement it checks."""

from __future__ import annotations

import pytest

from rlconform.contract import load_requirements


def requirement(
    requirement_id: str,
    *,
    capability: str = "",
    ends_plane: bool = False,
    race: bool = False,
    patience: float = 0.0,
) -> pytest.MarkDecorator:
    """Mark a check with the requirement that it checks.

    ``capability`` is needed only where the requirement names several; a check of a requirement
    with one capability needs that one. A check that closes the owner's client says ``ends_plane``:
    it runs after the others, and a fresh plane follows it. One that waits long for threads to meet
    at an unlucky moment says ``race``: it is left out where only what always shows is looked for.
    One that works for long by itself says how many seconds in ``patience``: it gets these, where
    the target allows its checks less.

    Raises:
        ValueError: No such requirement, or a capability that it doesn't name.
    """
    row = load_requirements().get(requirement_id)
    if row is None:
        raise ValueError(f"no requirement {requirement_id!r} in requirements.toml")
    if capability and capability not in row.capability:
        raise ValueError(f"{requirement_id} does not depend on capability {capability!r}")
    if not capability and len(row.capability) > 1:
        raise ValueError(f"{requirement_id} depends on {row.capability}: say which one is checked")
    needs = capability or next(iter(row.capability), "")
    return pytest.mark.requirement(
        requirement_id, capability=needs, ends_plane=ends_plane, race=race, patience=patience
    )
