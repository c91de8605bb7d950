"""Lets Megatron-core run on CPUs over gloo, for tests on machines without a GPU.

Megatron-core 0.16 asks for CUDA in places that need none. ``use_cpu_for_cuda`` answers these for
the process that calls it:

    torch.cuda.current_device()      the CPU
    device="cuda" of any function    the CPU
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
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


class CudaMeansCPU(TorchFunctionMode):
    """Replaces ``device="cuda"`` in calls of torch's functions."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = CPU
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return func(*args).replace("torch.", "torch.cuda.")
        return func(*args, **kwargs)


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
    CudaMeansCPU().__enter__()
