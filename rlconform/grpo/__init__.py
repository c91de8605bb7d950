"""The reference GRPO: the algorithm, the workers, and two trainers that differ in transport alone."""
