"""What checks play on a plane: partitions, rows that say whose they are, steps, rollouts."""
