"""Aggregations: what is computed over the segments of an extent."""
