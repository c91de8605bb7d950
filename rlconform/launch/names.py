"""``RecipeName``: what the name of a recipe says, under NeMo-RL's scheme.

    grpo-qwen3-30ba3b-2n8g-megatron-tp2-seqpack-async-1off-tq_simple-tiny
    algo model        size strategy modifiers...           plane     twin

A name without a plane is that of the legacy trainer, which keeps its rows in memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from rlconform._files import excerpt
from rlconform.contract import ConfigError, did_you_mean

Strategy = Literal["fsdp2", "megatron"]
PlaneSuffix = Literal["ray_store", "tq_simple", "tq_mooncake"]

PLANES: tuple[PlaneSuffix, ...] = ("ray_store", "tq_simple", "tq_mooncake")
TWIN = "tiny"
MODELS = ("llama3.1-8b-instruct", "qwen3-30ba3b")

_NAME = re.compile(
    rf"(?P<algo>grpo)-(?P<model>{'|'.join(map(re.escape, MODELS))})"
    r"-(?P<nodes>[1-9]\d*)n(?P<gpus>[1-9]\d*)g-(?P<strategy>fsdp2|megatron)(?P<rest>(?:-[\w.]+)*)"
)
#: Modifiers with a number.
_SIZES = ("tp", "pp", "cp", "ep")
_FLAGS = ("noncolocated", "seqpack", "dynbatch", "r3")


@dataclass(frozen=True)
class RecipeName:
    """The parts of a recipe's name."""

    model: str
    nodes: int
    gpus_per_node: int
    strategy: Strategy
    sizes: tuple[tuple[str, int], ...] = ()  # tp, pp, cp, ep that the name has
    flags: tuple[str, ...] = ()
    steps_off: int | None = None  # of ``async-<n>off``; None for a synchronous run
    plane: PlaneSuffix | None = None  # None for the legacy trainer
    tiny: bool = False

    @property
    def family(self) -> str:
        """The name of the recipe's file: without the plane and without ``-tiny``."""
        parts = [f"grpo-{self.model}-{self.nodes}n{self.gpus_per_node}g-{self.strategy}"]
        parts += [f"{kind}{size}" for kind, size in self.sizes]
        parts += self.flags
        if self.steps_off is not None:
            parts.append(f"async-{self.steps_off}off")
        return "-".join(parts)

    def __str__(self) -> str:
        plane = f"-{self.plane}" if self.plane else ""
        return f"{self.family}{plane}{f'-{TWIN}' if self.tiny else ''}"

    @property
    def legacy(self) -> RecipeName:
        """The recipe that trains the same without a plane."""
        return replace(self, plane=None)


def parse_name(text: str) -> RecipeName:
    """Parse a recipe's name; ``ConfigError`` says which part can't be read."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"recipe {excerpt(text)!r}: expected grpo-MODEL-<n>n<g>g-fsdp2|megatron[-MODIFIER...]"
            f"[-PLANE]"
            f"[-{TWIN}], MODEL one of {', '.join(MODELS)}"
        )
    name = RecipeName(
        match["model"], int(match["nodes"]), int(match["gpus"]), _strategy(match["strategy"])
    )
    parts = match["rest"].split("-")[1:]
    while parts:
        name = _with_part(text, name, parts)
    if str(name) != text:
        raise ConfigError(
            f"recipe {excerpt(text)!r}: expected its parts in the order of {str(name)!r}"
        )
    return name


def _strategy(text: str) -> Strategy:
    return "fsdp2" if text == "fsdp2" else "megatron"


def _with_part(text: str, name: RecipeName, parts: list[str]) -> RecipeName:
    """Take the next modifier off ``parts`` and return the name with it."""
    part = parts.pop(0)
    size = re.fullmatch(rf"({'|'.join(_SIZES)})([1-9]\d*)", part)
    if size:
        return replace(name, sizes=(*name.sizes, (size[1], int(size[2]))))
    if part in _FLAGS:
        return replace(name, flags=(*name.flags, part))
    if part == "async" and parts and (off := re.fullmatch(r"(\d+)off", parts[0])):
        parts.pop(0)
        return replace(name, steps_off=int(off[1]))
    for plane in PLANES:
        if part == plane:
            return replace(name, plane=plane)
    if part == TWIN:
        return replace(name, tiny=True)
    known = (*_FLAGS, "async-<n>off", *(f"{kind}<n>" for kind in _SIZES), *PLANES, TWIN)
    raise ConfigError(
        f"recipe {excerpt(text)!r}: {excerpt(part)!r} is no modifier and no plane"
        f"{did_you_mean(part, known)}; there "
        f"are {', '.join(known)}"
    )
