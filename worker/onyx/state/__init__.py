"""Durable state of tasks: logs of immutable chunks in a directory or an object store."""
