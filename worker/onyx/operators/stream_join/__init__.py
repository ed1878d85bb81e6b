"""Joins of two streams: rows are kept by key and time until no partner can come."""
