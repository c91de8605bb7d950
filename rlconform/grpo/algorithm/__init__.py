"""The arithmetic of GRPO: pure functions on tensors and metas, each with formula and source."""
