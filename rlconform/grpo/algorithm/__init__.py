"""GRPO's arithmetic: pure functions on tensors and metas, each with its formula and source."""
