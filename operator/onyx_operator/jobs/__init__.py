"""OnyxJob: from the resource to commands in the log, and from the replica to its status."""
