"""Tasks of a second registration of a partition that was registered for train and prev_lp."""

from __future__ import annotations

#: By name. A plane that knows a task by its place in the list takes one for another.
TASKS_REGISTERED_AGAIN = {
    "same": ("train", "prev_lp"),
    "reversed": ("prev_lp", "train"),
    "with_another_first": ("ref_lp", "train", "prev_lp"),
}
