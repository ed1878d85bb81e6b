"""The options of the output `spark`, and which masters there are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import is_object
from onyx.plugins.parts.options import PartOptions

_CONNECT = "sc://"
_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?")
_STANDALONE = re.compile(r"spark://[^\s/,:]+:\d+(,[^\s/,:]+:\d+)*")
_SERVER = re.compile(r"sc://[^\s/:;]+(:\d+)?(/(;[^\s;=]+=[^\s;]*)*;?)?")
_MASTERS = "local[N], spark://host:port and sc://host:port can be used"
_SECRETS = re.compile(r";\s*(token|x-[^=]*|authorization)\s*=", re.IGNORECASE)
_OF_SESSIONS = "spark.sql."
"""How settings begin that a session of a Connect server may have of its own."""


def is_local(master: str) -> bool:
    """Whether Spark runs in the stage's own process."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Whether it is a Spark Connect server."""
    return master.startswith(_CONNECT)


class SparkOptions(PartOptions, frozen=True, kw_only=True):
    """Which stage runs over the parts, and where.

    `path` holds `parts/` and `result/`. All workers of the task must see it and, if it is a
    directory, Spark as well.
    """

    stage: str
    """`package.module:name` of a function from DataFrame to DataFrame."""
    master: Annotated[str, msgspec.Meta(min_length=1)] = "local[*]"
    """`local[*]`, `spark://host:port`, or `sc://host:port` for Spark Connect."""
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
        wrong = list(_wrong_master(self.master))
        yield from wrong
        if is_connect(self.master):
            yield from _not_of_a_session(self.spark_conf)
        if not wrong and is_object(self.path) and not is_local(self.master):
            yield Problem(
                "master",
                f"is {self.master!r}, but parts in an object store are copied to the worker, where "
                "only a local master sees them",
                "take a local one, or a path on a shared volume",
            )


def _wrong_master(master: str) -> Iterator[Problem]:
    if master.startswith("k8s://"):
        what = "cannot be k8s://: Onyx starts no Spark executors on Kubernetes yet"
        hint = (
            "run a Spark Connect server in the cluster and give sc://host:15002, or take local[*]"
        )
        yield Problem("master", what, hint)
    elif is_connect(master) and _SECRETS.search(master):
        what = "holds a secret, and a job is for many eyes"
        hint = "set SPARK_CONNECT_AUTHENTICATE_TOKEN for the workers"
        yield Problem("master", what, hint)
    elif not any(form.fullmatch(master) for form in (_LOCAL, _STANDALONE, _SERVER)):
        yield Problem("master", f"is {master!r}, which is no master that is known here", _MASTERS)


def _not_of_a_session(conf: Mapping[str, str]) -> Iterator[Problem]:
    for key in conf:
        if key.startswith("spark.") and not key.startswith(_OF_SESSIONS):
            what = "is set where a Spark Connect server is started, not by who uses it"
            yield Problem(f"sparkConf.{key}", what, f"only {_OF_SESSIONS}* with a master sc://")
