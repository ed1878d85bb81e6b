"""What a task calls in Spark: sessions and the processes that they live in, stages, windows,
DataFrames as inputs, and the driver of a whole job. `spark_query` runs tasks inside Spark."""
