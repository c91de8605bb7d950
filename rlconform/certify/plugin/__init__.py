"""The pytest plugin of a test process: opens the plane, runs the checks, reports their results."""
