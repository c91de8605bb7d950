"""What Hypothesis draws does not depend on the modules that a process has imported."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers

from rlconform.certify.properties.hypothesis_isolation import no_constants_of_modules

LITERAL = "zq-literal"


def test_literals_of_modules_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_with_a_literal.py").write_text(f"TEXT = {LITERAL!r}\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    importlib.import_module("module_with_a_literal")
    with no_constants_of_modules():
        assert LITERAL not in _drawn_strings()
    assert LITERAL in _drawn_strings()


def _drawn_strings() -> set[str]:
    return set(providers._get_local_constants().strings)
