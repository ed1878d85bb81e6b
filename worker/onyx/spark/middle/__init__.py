"""A Spark stage in the middle of a job: bundles of segments go in, and its rows go on."""
