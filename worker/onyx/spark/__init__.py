"""Heavy aggregation on Spark: sessions, the process they live in, and stages that end a job."""
