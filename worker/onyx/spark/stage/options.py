"""The options of the output `spark`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import is_object
from onyx.plugins.parts.options import PartOptions
from onyx.spark.session.masters import is_connect, is_local, not_of_a_session, wrong_master


class SparkOptions(PartOptions, frozen=True, kw_only=True):
    """Which stage runs over the parts, and where.

    `path` holds `parts/` and `result/`. All workers of the task must see it and, if it is a
    directory, Spark as well.
    """

    stage: str
    """`package.module:name` of a function from DataFrame to DataFrame."""
    master: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """`local[*]`, `spark://host:port`, or `sc://host:port` for Spark Connect. By default that of
    the worker (`ONYX_SPARK_MASTER`): `local[*]`, or the server of the OnyxCluster."""
    result_format: Literal["parquet", "jsonl"] = "parquet"
    schema: str | None = None
    """Columns of the segments in Spark's DDL (`row BIGINT, delay DOUBLE`). Without it they are
    taken from the parts, and no stage runs when there is not a single segment."""
    stage_timeout: Annotated[float, msgspec.Meta(gt=0)] = 3_600.0
    """Longest run of the stage in seconds."""
    spark_conf: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of Spark (`spark.driver.memory: 4g`); with `sc://` those of a session
    (`spark.sql.shuffle.partitions: "64"`), for the others are the server's."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        if self.master is not None:
            yield from wrong_master_of(self, self.master)


def wrong_master_of(options: SparkOptions, master: str) -> Iterator[Problem]:
    """What is wrong with running the stage of these options there."""
    wrong = list(wrong_master(master))
    yield from wrong
    if is_connect(master):
        yield from not_of_a_session(options.spark_conf)
    if not wrong and is_object(options.path) and not is_local(master):
        yield Problem(
            "master",
            f"is {master!r}, but parts in an object store are copied to the worker, where "
            "only a local master sees them",
            "take a local one, or a path on a shared volume",
        )
