"""Wrong orders of replayed routes, which keep all shapes; ``plant`` puts one into this process.

rows first     padded rows one after the other, not sequence first
next part      the tokens of the next sequence-parallel rank
first layers   a pipeline stage's layers are counted from its own first one
newest first   the backward pass gets the routes of the newest micro-batch
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlconform.grpo.router_replay.megatron import MegatronReplayer

_RIGHT = "right_methods"


def plant(defect: str) -> None:
    """Give ``MegatronReplayer`` a defect, or its own methods for ""."""
    replayer: Any = MegatronReplayer
    if _RIGHT not in vars(replayer):
        names = ("order_of_rank", "forward", "backward")
        setattr(replayer, _RIGHT, {name: vars(replayer)[name] for name in names})
    right: dict[str, Callable[..., Any]] = getattr(replayer, _RIGHT)
    for name, method in right.items():
        setattr(replayer, name, method)
    if defect:
        setattr(replayer, *_defects(right)[defect])


def _defects(right: dict[str, Callable[..., Any]]) -> dict[str, tuple[str, Callable[..., Any]]]:
    """Return the method that each defect replaces, and what replaces it."""

    def rows_first(self: Any, order: Any) -> Any:
        layout, self._layout = self._layout, "packed"
        try:
            return right["order_of_rank"](self, order)
        finally:
            self._layout = layout

    def next_part(self: Any, order: Any) -> Any:
        rank, self._tp_rank = self._tp_rank, (self._tp_rank + 1) % self._parts
        try:
            return right["order_of_rank"](self, order)
        finally:
            self._tp_rank = rank

    def first_layers(self: Any, *args: Any) -> Any:
        self._layers = list(range(len(self._layers)))
        return right["forward"](self, *args)

    def newest_first(self: Any) -> Any:
        for router in self._instances:
            router.replay_backward_list.insert(0, router.replay_backward_list.pop())
        return right["backward"](self)

    return {
        "rows first": ("order_of_rank", rows_first),
        "next part": ("order_of_rank", next_part),
        "first layers": ("forward", first_layers),
        "newest first": ("backward", newest_first),
    }
