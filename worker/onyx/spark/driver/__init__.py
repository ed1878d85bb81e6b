"""The worker's side of a job that Spark runs as a whole: its process, its counts, its result."""
