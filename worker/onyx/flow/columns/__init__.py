"""Segments as columns: their types, their values, and the way to and from dicts."""
