"""Tests of the configuration of a GRPO run."""
