"""Inputs: partitions, what is pending, retries, and frontiers."""
