"""Converts weight names of a model in memory to the names in its checkpoint on disk.

    in memory      model.layers.0.mlp.experts.gate_up_proj          (E, 2 I, H), all E experts
    checkpoint     model.layers.0.mlp.experts.0.gate_proj.weight    (I, H), one tensor per expert

Engines other than transformers read checkpoint names. Dense models have the same names in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_GATE_AND_UP = ".experts.gate_up_proj"
_DOWN = ".experts.down_proj"
_OF_EXPERT = re.compile(r"(.+\.experts\.)(\d+)\.(gate|up|down)_proj\.weight")


def as_checkpoint(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a ``state_dict`` under their checkpoint names, as views, not copies."""
    for name, tensor in weights.items():
        if name.endswith(_GATE_AND_UP):
            prefix = name.removesuffix("gate_up_proj")
            for expert, both in enumerate(tensor):
                gate, up = both.chunk(2)
                yield f"{prefix}{expert}.gate_proj.weight", gate
                yield f"{prefix}{expert}.up_proj.weight", up
        elif name.endswith(_DOWN):
            prefix = name.removesuffix("down_proj")
            for expert, down in enumerate(tensor):
                yield f"{prefix}{expert}.down_proj.weight", down
        else:
            yield name, tensor


def from_checkpoint(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return checkpoint weights under their names in memory; those of experts are copied."""
    named: dict[str, Tensor] = {}
    experts: dict[str, dict[str, list[tuple[int, Tensor]]]] = {}
    for name, tensor in weights.items():
        if found := _OF_EXPERT.fullmatch(name):
            kinds = experts.setdefault(found[1], {"gate": [], "up": [], "down": []})
            kinds[found[3]].append((int(found[2]), tensor))
        else:
            named[name] = tensor
    for prefix, kinds in experts.items():
        gate, up, down = (
            torch.stack([tensor for _, tensor in sorted(of_kind, key=lambda each: each[0])])
            for of_kind in kinds.values()
        )
        named[f"{prefix}gate_up_proj"] = torch.cat([gate, up], dim=1)
        named[f"{prefix}down_proj"] = down
    return named
