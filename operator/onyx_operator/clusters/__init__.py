"""OnyxCluster: a worker pool and everything around it."""
