"""Segments and log entries as bytes: bounded msgpack and JSON, never pickle."""
