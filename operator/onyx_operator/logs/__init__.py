"""The logs of clusters, followed: one view a cluster, and what it knows of jobs."""
