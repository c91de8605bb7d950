"""What Hypothesis draws does not depend on the modules that a process has imported."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from rlconform.certify.properties.hypothesis_isolation import no_constants_of_modules

#: How the literals of a module begin; so many are most of those that Hypothesis finds.
BEGINNING, LITERALS = "zq-literal-", 500


def test_literals_of_modules_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_with_a_literal.py").write_text(
        "\n".join(f"T{n} = {f'{BEGINNING}{n}'!r}" for n in range(LITERALS)), "utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    importlib.import_module("module_with_a_literal")
    assert _literals_drawn()
    with no_constants_of_modules():
        assert not _literals_drawn()
    assert _literals_drawn()


def _literals_drawn() -> set[str]:
    """Return the literals that Hypothesis draws: one text in twenty, if it knows any."""
    drawn: set[str] = set()

    @settings(max_examples=100, database=None, deadline=None)
    @seed(0)
    @given(st.lists(st.text(), min_size=200, max_size=200))
    def example(texts: list[str]) -> None:
        drawn.update(text for text in texts if text.startswith(BEGINNING))

    example()
    return drawn
