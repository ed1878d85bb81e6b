"""A whole job on Spark: the process that runs it, and what it says to the worker that asked."""
