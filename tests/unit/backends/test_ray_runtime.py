"""A Ray that does not start is tried once more, and then is a typed error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlconform.backends import ray_runtime
from rlconform.contract import PlaneUnavailable

pytest.importorskip("ray", reason="Ray is not installed")


def late() -> None:
    raise Exception("The current node timed out during startup.")  # as Ray raises it


def wrong() -> None:
    raise ValueError("a setting")


def starts(*outcomes: Callable[[], None]) -> tuple[list[str], Callable[..., None]]:
    """Return the addresses that were tried so far, and a start with these outcomes."""
    tried: list[str] = []

    def start(address: str, **_: object) -> None:
        tried.append(address)
        outcomes[len(tried) - 1]()

    return tried, start


@pytest.mark.parametrize(
    ("outcomes", "error", "tries"),
    [
        ((late, late), PlaneUnavailable, 2),
        ((wrong,), ValueError, 1),
        ((late, wrong), ValueError, 2),
    ],
)
def test_a_ray_that_does_not_start_is_a_typed_error_after_two_tries(
    outcomes: tuple[Callable[[], None], ...],
    error: type[Exception],
    tries: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    tried, start = starts(*outcomes)
    monkeypatch.setattr(ray_runtime, "_init", start)
    monkeypatch.setattr(ray_runtime, "_set_environment", lambda _: {})
    monkeypatch.setattr(ray_runtime.tempfile, "mkdtemp", lambda **_: str(tmp_path / "ray"))
    monkeypatch.delenv(ray_runtime.SHARED_RAY, raising=False)
    with pytest.raises(error):
        ray_runtime.ensure_ray()
    assert tried == ["local"] * tries
