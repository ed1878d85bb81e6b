"""Heavy aggregation on Spark: stages over what the peers of a task wrote."""
