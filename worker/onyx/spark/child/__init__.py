"""The process in which Spark runs: what it is asked, and its start, end and failures."""
