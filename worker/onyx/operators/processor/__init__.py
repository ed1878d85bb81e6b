"""Processors: objects of users that take segments from an inbox and save their own state."""
