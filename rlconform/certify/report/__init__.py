"""From results to the verdict, the waivers and the report."""
