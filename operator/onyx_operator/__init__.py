"""The Kubernetes operator of Onyx: OnyxJob and OnyxCluster resources become what they ask for."""
