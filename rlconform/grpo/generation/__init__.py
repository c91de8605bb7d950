"""Generation of responses: one interface, transformers as the default engine, vLLM as an option."""

from rlconform.grpo.generation.base import GenerationEngine, Prompts, Responses, Sampling
from rlconform.grpo.generation.factory import build_engine
from rlconform.grpo.generation.seeds import row_seeds

__all__ = ["GenerationEngine", "Prompts", "Responses", "Sampling", "build_engine", "row_seeds"]
