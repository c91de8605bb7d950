"""``FunctionScorer``: rewards rows with a function of yours, sync or async, under verl's signature.

    def compute_score(data_source, solution_str, ground_truth, extra_info, **reward_kwargs):
        return 1.0                                   # or a dict with ``score`` and anything else
    async def compute_score(...): ...                # runs in the reward loop; must not block

    reward loop ── coroutine function ──▶ awaited in the loop
                ── function ────────────▶ a thread of the pool, one per call in progress

A function that takes a second for a row therefore takes about a second for all of them. A call that
never returns keeps its thread; its row fails after ``reward_loop.timeout_s``.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from rlconform.contract import ConfigError
from rlconform.grpo.config.rewards import CustomRewardFunctionConfig
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rewards.outcome import finite, malformed

RewardFunction = Callable[..., Any]


class FunctionScorer(RewardScorer):
    """Calls ``function`` once per row, in ``threads`` threads at most.

    The function gets the row's ``data_source``, what the policy wrote (turns are joined by a line
    break), the answer, and the problem's ``extra_info`` with ``validate`` (whether the row belongs
    to a validation), ``sample_id``, ``attempt`` and ``turns`` (the texts) added. It returns a
    number, or a mapping with ``score``; ``components`` (numbers by name, for ``gdpo``) and
    ``turn_values`` (a number per turn) have their meaning, other keys are kept as extra values.
    """

    def __init__(
        self, function: RewardFunction, reward_kwargs: Mapping[str, Any], *, threads: int
    ) -> None:
        self._function, self._kwargs = function, dict(reward_kwargs)
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="reward")

    async def score(self, request: RewardRequest) -> Reward:
        """Call the function for a row."""
        arguments = _arguments(request)
        if self._is_async:
            answer = await self._function(**arguments, **self._kwargs)
        else:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, self._call, arguments)
        return _reward(answer, request)

    async def close(self) -> None:
        """Let the threads end after their calls, without waiting for these."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _call(self, arguments: Mapping[str, Any]) -> Any:
        try:
            return self._function(**arguments, **self._kwargs)
        except StopIteration as error:  # a future can't hold it
            raise RuntimeError("the reward function raised StopIteration") from error


def load_reward_function(config: CustomRewardFunctionConfig) -> RewardFunction:
    """Load the function; ``ConfigError`` if the file, the module or the name is not there."""
    try:
        module = _load_file(config.path) if _is_file(config.path) else _load_module(config.path)
    except (ImportError, SyntaxError, OSError) as error:
        raise ConfigError(
            f"custom_reward_function.path {config.path!r} can't be loaded: {error}; expected a "
            "Python file or the name of a module"
        ) from error
    function = getattr(module, config.name, None)
    if not callable(function):
        names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        raise ConfigError(
            f"expected a function {config.name!r} in custom_reward_function.path {config.path!r}; "
            f"there are {names}"
        )
    return function  # type: ignore[no-any-return]


def _is_file(path: str) -> bool:
    return path.endswith(".py") or Path(path).is_file()


def _load_file(path: str) -> ModuleType:
    file = Path(path).absolute()
    name = f"custom_reward_function_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # for dataclasses in it
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    return importlib.import_module(name)


def _arguments(request: RewardRequest) -> dict[str, Any]:
    texts = [turn.text for turn in request.turns]
    of_row = {
        "validate": request.split == "val",
        "sample_id": request.sample_id,
        "attempt": request.attempt,
        "turns": texts,
    }
    return {
        "data_source": request.problem.data_source,
        "solution_str": "\n".join(texts),
        "ground_truth": request.problem.answer,
        "extra_info": {**request.problem.extra_info, **of_row},
    }


def _reward(answer: object, request: RewardRequest) -> Reward:
    """Return the reward that an answer of the function is; ``checked`` looks at its parts."""
    if not isinstance(answer, Mapping):
        value = finite(answer, "the reward", request)
        return Reward(request.sample_id, request.attempt, value)
    extra = {str(key): value for key, value in answer.items()}
    if "score" not in extra:
        raise malformed(
            f"expected a mapping with 'score' for {request.sample_id!r}; got {sorted(extra)}"
        )
    value = finite(extra.pop("score"), "the reward", request)
    components, turn_values = extra.pop("components", {}), extra.pop("turn_values", ())
    if not isinstance(components, Mapping):
        raise malformed(f"expected components by name; got {components!r}")
    if not isinstance(turn_values, list | tuple):
        raise malformed(f"expected turn_values as a list; got {turn_values!r}")
    return Reward(request.sample_id, request.attempt, value, components, tuple(turn_values), extra)
