"""Names under which the engine records what processors have saved."""

SNAPSHOT = "snapshot"
"""The entries of snapshots."""
ENDS = ".ends"
"""What has ended."""
