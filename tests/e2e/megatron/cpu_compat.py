"""Lets Megatron-core run on CPUs over gloo, for tests on machines without a GPU.

Megatron-core 0.16 asks for CUDA in places that need none. ``use_cpu_for_cuda`` answers these for
the process that calls it:

    torch.cuda.current_device()      the CPU
    device="cuda" of a new tensor    the CPU; pin_memory nothing
    streams, events, synchronize     nothing
    CUDA's random generators         the CPU's
    Tensor.type()                    torch.cuda.FloatTensor, which the optimizer compares
    sizes of an all-to-all           lists, which gloo needs
    torch.compile                    plain Python, which needs no C++ compiler

Nothing outside the tests knows of it.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import wraps
from typing import Any

import torch

CPU = torch.device("cpu")


class NoStream:
    """A stream or an event on which nothing waits."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoStream)

    __hash__ = object.__hash__

    def record_event(self, *_: Any) -> NoStream:
        return NoStream()

    def _nothing(self, *_: Any) -> None:
        pass

    wait_stream = wait_event = synchronize = record = wait = _nothing


def use_cpu_for_cuda() -> None:
    """Patch torch and Megatron in this process, once; call it before a model is built."""
    cuda: Any = torch.cuda
    if cuda.Stream is NoStream:
        return
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    cuda.current_device = lambda: CPU
    cuda.Stream = cuda.Event = NoStream
    cuda.current_stream = cuda.default_stream = NoStream
    cuda.stream = lambda _: nullcontext()
    for name in ("synchronize", "empty_cache", "manual_seed"):
        setattr(cuda, name, lambda *_: None)  # one function each: torch.compile lists them
    cuda.get_rng_state = lambda *_: torch.get_rng_state()
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import token_dispatcher

    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)

    def as_list(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:  # noqa: ARG001
        return tensor.tolist() if as_numpy and torch.is_tensor(tensor) else tensor

    token_dispatcher.maybe_move_tensor_to_cpu = as_list
    for name in ("arange", "empty", "full", "ones", "tensor", "zeros"):
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    as_it_is = torch.Tensor.type
    torch.Tensor.type = lambda tensor, *to, **options: (  # type: ignore[method-assign]
        as_it_is(tensor, *to, **options)
        if to or options
        else as_it_is(tensor).replace("torch.", "torch.cuda.")
    )
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[method-assign]


def _on_cpu(create: Any) -> Any:
    """Wrap a function that creates a tensor."""

    @wraps(create)
    def on_cpu(*args: Any, **options: Any) -> Any:
        if "cuda" in str(options.get("device", "")):
            options["device"] = CPU
        options.pop("pin_memory", None)
        return create(*args, **options)

    return on_cpu
