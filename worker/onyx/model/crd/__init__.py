"""The custom resource definitions of OnyxJob and OnyxCluster, derived from the keys."""
