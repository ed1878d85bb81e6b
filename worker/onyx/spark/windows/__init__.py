"""Windows that Spark aggregates: files of rows, plans of firings, and their results."""
