"""The reference GRPO: the algorithm, the workers, two trainers that differ in transport alone."""
