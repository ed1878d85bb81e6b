"""From a job to the plan by which Spark runs it; pure, and without PySpark."""
