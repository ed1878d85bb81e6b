"""Joins of segments with tables, and of segments with segments: pure, over whole batches."""
