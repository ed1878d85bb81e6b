"""Spark stages: at the end of a job, and in the middle of one. DataFrames in, a DataFrame out."""


def delays(flights):
    """Statistics of the delays for each carrier, origin and month.

    Delivery is at least once, so a flight may be there twice after a failure; its
    row number identifies it.
    """
    from pyspark.sql import functions as F  # here: a worker that runs no stage loads no Spark

    return (
        flights.dropDuplicates(["row"])
        .groupBy("carrier", "origin", "month")
        .agg(
            F.count("*").alias("flights"),
            F.count("delay").alias("measured"),
            F.sum("delay").alias("delay_sum"),
            F.avg("delay").alias("delay_mean"),
            F.min("delay").alias("delay_min"),
            F.max("delay").alias("delay_max"),
            F.max("speed").alias("speed_max"),
        )
        .coalesce(1)
        .orderBy("carrier", "origin", "month")
    )


def outliers(fly, by_destination, minutes):
    """Flights that were later than the mean of their destination by so many minutes and more."""
    both = fly.join(by_destination, "destination")
    return both.where(both.delay >= both.mean + minutes)
