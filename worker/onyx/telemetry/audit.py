"""The logger of audit, apart from `logs`, which commands that have no log do not import."""

AUDIT = "onyx.audit"
"""The logger whose lines are JSON already, and are logged as they are in every form of the log."""
