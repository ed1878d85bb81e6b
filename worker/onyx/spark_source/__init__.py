"""`format("onyx")`: what jobs of Onyx have written, and the state of their windows, for Spark.

    from onyx.spark_source import OnyxDataSource

    spark.dataSource.register(OnyxDataSource)
    spark.read.format("onyx").load("out/delays")
    spark.readStream.format("onyx").option("job", "...").option("task", "write").load()

A user of Spark imports this package; no module of Onyx does.
"""

from __future__ import annotations

from onyx.spark_source.data_source import OnyxDataSource

__all__ = ["OnyxDataSource"]
