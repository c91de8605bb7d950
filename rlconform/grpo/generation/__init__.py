"""Generation of responses: one interface with two engines, transformers (default) and vLLM."""

from rlconform.grpo.generation.base import GenerationEngine, Prompts, Responses, Sampling
from rlconform.grpo.generation.factory import build_engine
from rlconform.grpo.generation.seeds import row_seeds

__all__ = ["GenerationEngine", "Prompts", "Responses", "Sampling", "build_engine", "row_seeds"]
