"""The options of a task with `sparkStage`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import Options, wrong_folder
from onyx.plugins.rolling import BUNDLE_LIMITS
from onyx.spark.session.masters import SparkMaster, wrong_spark_master
from onyx.spark.stage.options import Identifier


class MiddleOptions(Options, frozen=True, kw_only=True):
    """Where bundles lie, when one ends, and where the stage runs."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    """Folder for bundles and results, which all workers of the task and Spark must see; or
    `s3://bucket/path`."""
    bundle_segments: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """End a bundle when at least so many segments are in it. By default there is one bundle, which
    ends with the input."""
    bundle_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """End a bundle so many seconds after its first segments were seen."""
    stage_params: dict[Identifier, Any] = msgspec.field(default_factory=dict)
    """Further arguments of the stage, by their names."""
    schemas: dict[str, str] = msgspec.field(default_factory=dict)
    """Columns of what comes from a task upstream, in Spark's DDL: `{read: "row BIGINT"}`. Without
    it they are taken from the segments of each bundle."""
    master: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """`local[*]`, `spark://host:port`, or `sc://host:port` for Spark Connect. By default that of
    `spec.spark`, or of the worker (`ONYX_SPARK_MASTER`)."""
    spark_conf: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of Spark, on top of those of `spec.spark` unless there is a `master` here; with
    `sc://` those of a session."""
    stage_timeout: Annotated[float, msgspec.Meta(gt=0)] = 3_600.0
    """Longest run of the stage over one bundle, in seconds."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1)] = BUNDLE_LIMITS.size_bytes
    """Start a new part of a bundle at about this size."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = BUNDLE_LIMITS.segments
    """Start a new part of a bundle after so many segments."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = BUNDLE_LIMITS.age_s
    """Start a new part of a bundle after this time; until then its segments are not acked."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from wrong_folder("path", self.path)
        if self.master is not None:
            yield from wrong_spark_master(SparkMaster(self.master, self.spark_conf))
