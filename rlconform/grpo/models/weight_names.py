"""Names of weights: as a model holds them, and as its checkpoints on disk do.

    in memory      model.layers.0.mlp.experts.gate_up_proj          (E, 2 I, H), all experts in one
    checkpoint     model.layers.0.mlp.experts.0.gate_proj.weight    (I, H), and so on for each

Engines other than transformers read the latter. Dense models have the same names in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

_GATE_AND_UP = ".experts.gate_up_proj"
_DOWN = ".experts.down_proj"


def as_checkpoint(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The weights under the names, and in the pieces, of a checkpoint; they share memory.

    Args:
        weights: A model's ``state_dict``.
    """
    for name, tensor in weights.items():
        if name.endswith(_GATE_AND_UP):
            yield from _gates_and_ups(name.removesuffix("gate_up_proj"), tensor)
        elif name.endswith(_DOWN):
            prefix = name.removesuffix("down_proj")
            for expert, down in enumerate(tensor):
                yield f"{prefix}{expert}.down_proj.weight", down
        else:
            yield name, tensor


def _gates_and_ups(prefix: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    for expert, both in enumerate(tensor):
        gate, up = both.chunk(2)
        yield f"{prefix}{expert}.gate_proj.weight", gate
        yield f"{prefix}{expert}.up_proj.weight", up
