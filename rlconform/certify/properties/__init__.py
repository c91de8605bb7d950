"""Property-based checks: generated examples, and sequences of calls compared with a model."""
