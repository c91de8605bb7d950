"""What checks try that nobody wrote down: generated examples, and a machine beside a model."""
