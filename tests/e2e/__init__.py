"""Whole GRPO runs, and certifications at level e2e."""
