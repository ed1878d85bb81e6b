"""Triggers: when an extent fires, and what each trigger remembers for it."""
