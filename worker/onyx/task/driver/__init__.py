"""The driver of a job that Spark runs: the task of a kind of its own that such a job has."""
