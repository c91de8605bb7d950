"""Records the client calls of a check: for the evidence, the reproducer and the timing."""
