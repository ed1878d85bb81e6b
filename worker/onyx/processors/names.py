"""Names under which the engine records what processors have saved."""

SNAPSHOT = "snapshot"
"""Of the entries."""
ENDS = ".ends"
"""Of what has ended."""
