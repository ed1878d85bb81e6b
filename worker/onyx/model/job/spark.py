"""`spec.spark`: where and how Spark runs a job, or what it runs of one.

A section of its own, and not options of a task: the whole job is one query of one session, and
windows, stages and inputs of a job on peers share one warm child a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import field

from onyx.model.keys.compound import MapOf
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Text

SETTINGS_MAX = 256


class Spark(msgspec.Struct, frozen=True):
    """Where and how Spark runs the job, or windows, stages and inputs of it. A stage or an input
    that names a `master` of its own takes nothing from here; otherwise its `sparkConf` comes on top
    of the settings here."""

    master: Annotated[
        str | None, Key(restriction="`local[N]`, `spark://host:port` or `sc://host:port`.")
    ] = None
    """Where Spark runs: on the worker's machine (`local[*]`, which needs no other server), on a
    standalone cluster, or on a Spark Connect server. By default where the worker says."""
    spark_conf: Annotated[Mapping[str, str], MapOf(Text(), Text(empty=True), SETTINGS_MAX)] = field(
        default_factory=lambda: EMPTY
    )
    """Settings of Spark, such as `spark.driver.memory: 4g`; with `sc://` only those that a session
    may set (`spark.sql.*`)."""
