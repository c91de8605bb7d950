"""Converts weight names of a model in memory to the names in its checkpoint on disk.

    in memory      model.layers.0.mlp.experts.gate_up_proj          (E, 2 I, H), all E experts
    checkpoint     model.layers.0.mlp.experts.0.gate_proj.weight    (I, H), one tensor per expert

Engines other than transformers read checkpoint names. Dense models have the same names in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

_GATE_AND_UP = ".experts.gate_up_proj"
_DOWN = ".experts.down_proj"


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
