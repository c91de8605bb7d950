"""The one decorator of a check: which requirement it checks."""

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

    ``capability`` is needed only where the requirement names several; a check of a requirement
    with one capability needs that one. A check that closes the owner's client says ``ends_plane``:
    it runs after the others, and a fresh plane follows it. One that waits long for threads to meet
    at an unlucky moment says ``race``: it is left out where only what always shows is looked for.
    One that works for long by itself says how many seconds in ``patience``: it gets these, where
    the target allows its checks less. ``leans_on`` names the requirements that the whole check
    takes for granted: where one of them is broken too, a failure may follow from it. A single
    assertion says so with ``leaning_on``, which is more exact.

    Raises:
        ValueError: No such requirement, or a capability that it doesn't name.
    """
    known = load_requirements()
    row = known.get(requirement_id)
    for named in (requirement_id, *leans_on):
        if named not in known:
            raise ValueError(f"no requirement {named!r} in requirements.toml")
    assert row is not None
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
