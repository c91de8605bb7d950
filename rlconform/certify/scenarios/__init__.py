"""Code that checks share: partitions, rows and batches that they put, and whole flows of calls."""
