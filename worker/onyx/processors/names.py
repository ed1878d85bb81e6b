"""Names under which the engine records what processors have saved."""

SNAPSHOT = "snapshot"
"""The entries of snapshots."""
UNFINISHED = ".unfinished"
"""An item of which not all that it makes has been sent."""
ENDS = ".ends"
"""What has ended."""
