"""The report of ``check-run``: on the console, as JSON, as JUnit XML and as one HTML page."""
