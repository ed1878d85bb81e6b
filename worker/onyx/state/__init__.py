"""Durable state of windowed tasks: logs of immutable chunks in a directory or an object store."""
