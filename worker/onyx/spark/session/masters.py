"""Where Spark runs: which workers have it, which masters there are, what is wrong with others, and
which one a task has.

A `master` of the task counts first; then its own `sparkConf` is all. Otherwise the job's
`spec.spark` counts, whose `master` is that of the worker if there is none, and the task's
`sparkConf` comes on top of its own. So stages, DataFrames as inputs and windows of a job that say
nothing have the same Spark, and one child of a worker serves them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from onyx.base.on_demand import is_here
from onyx.errors import Problem, UserError
from onyx.model.job import Spark
from onyx.model.spark_settings import refused_settings
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext
from onyx.replica.spec import SPARK_TAG
from onyx.rights import Rights
from onyx.settings import Settings

_CONNECT = "sc://"
_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?")
_STANDALONE = re.compile(r"spark://[^\s/,:]+:\d+(,[^\s/,:]+:\d+)*")
_SERVER = re.compile(r"sc://[^\s/:;]+(:\d+)?(/(;[^\s;=]+=[^\s;]*)*;?)?")
_MASTERS = "local[N], spark://host:port and sc://host:port can be used"
_SECRETS = re.compile(r";\s*(token|x-[^=]*|authorization)\s*=", re.IGNORECASE)
OF_SESSIONS = "spark.sql."
"""How settings begin that a session of a Connect server may have of its own."""


def tags_of(settings: Settings) -> tuple[str, ...]:
    """The tags that the peers of a worker offer, each once. Java is not looked for: PySpark's child
    finds one, or the package brings it."""
    able = settings.spark and is_here("pyspark")
    return tuple(dict.fromkeys((*settings.tags, *((SPARK_TAG,) if able else ()))))


def is_local(master: str) -> bool:
    """Whether Spark runs in the child's own process."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Whether it is a Spark Connect server."""
    return master.startswith(_CONNECT)


def places_of(master: str) -> list[tuple[str, int]]:
    """Where the masters of a Spark cluster listen; none of other masters."""
    if not _STANDALONE.fullmatch(master):
        return []
    pairs = (each.rpartition(":") for each in master.removeprefix("spark://").split(","))
    return [(host, int(port)) for host, _, port in pairs]


def wrong_master(master: str) -> Iterator[Problem]:
    """What is wrong with a master, at the key `master`."""
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


def not_of_a_session(conf: Mapping[str, str]) -> Iterator[Problem]:
    """Settings that a session of a Connect server cannot have, at the keys `sparkConf.*`."""
    for key in conf:
        if key.startswith("spark.") and not key.startswith(OF_SESSIONS):
            what = "is set where a Spark Connect server is started, not by who uses it"
            yield Problem(f"sparkConf.{key}", what, f"only {OF_SESSIONS}* with a master sc://")


class SparkMaster(msgspec.Struct, frozen=True):
    """Where Spark runs, and how."""

    url: str
    """`local[*]`, `sc://host`, `spark://host:7077`."""
    conf: dict[str, str]
    """Settings of Spark."""


class OfTask(Protocol):
    """Options of a task that may say where Spark runs."""

    @property
    def master(self) -> str | None: ...

    @property
    def spark_conf(self) -> dict[str, str]: ...


Wrong = Callable[[SparkMaster], Iterable[Problem]]
"""What is wrong with a master, at the options `master` and `sparkConf`."""


def spark_of_job(spark: Spark | None, workers: str, rights: Rights) -> SparkMaster:
    """For what has no options of its own.

    Args:
        workers: the master of the worker.
        rights: what its owner lets jobs set.

    Raises:
        UserError: the job sets what it may not.
    """
    section = spark or Spark()
    for problem in refused_settings("spec.spark.sparkConf", section.spark_conf, rights.spark_conf):
        raise UserError(f"{problem.path} {problem.message}: {problem.hint}")
    return SparkMaster(section.master or workers, dict(section.spark_conf))


def spark_for(context: PluginContext, options: OfTask, wrong: Wrong) -> SparkMaster:
    """For a task.

    Args:
        wrong: says what is wrong with a master that its options do not name.

    Raises:
        UserError: Spark cannot run there what the task wants, or it sets what jobs may not.
    """
    for problem in refused_settings("sparkConf", options.spark_conf, context.rights.spark_conf):
        raise task_error(context, f"{problem.path} {problem.message}: {problem.hint}")
    if options.master is not None:
        return SparkMaster(options.master, options.spark_conf)
    of_job = spark_of_job(context.spark, context.spark_master, context.rights)
    master = SparkMaster(of_job.url, of_job.conf | options.spark_conf)
    source = "ONYX_SPARK_MASTER of the workers, because neither the task nor the job names one"
    if context.spark.master is not None:
        source = "spec.spark.master, because the task names none"
    for problem in wrong(master):
        what = f"{problem.path} {problem.message} ({source}): {problem.hint}"
        raise task_error(context, what)
    return master


def wrong_spark_master(master: SparkMaster) -> Iterable[Problem]:
    """What is wrong with a master, whatever runs there."""
    yield from wrong_master(master.url)
    if is_connect(master.url):
        yield from not_of_a_session(master.conf)
