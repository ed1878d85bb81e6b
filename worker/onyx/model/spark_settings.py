"""Settings of Spark that a job has: those that it may set, and those that are unknown or malformed,
found before Spark is started with them.

A job may set what tunes Spark. That is a list of what is allowed, and not of what is not: Spark has
a thousand settings, among them options of the JVM, class paths, jars and programs that it starts,
and each release brings more. All else is the business of who starts the worker:
`spark-defaults.conf`, or patterns in `ONYX_SPARK_CONF_ALLOWED` for what jobs may set besides.

The table beside this module has the key and the type of each setting, as Spark's own jars have it.
A value that Spark cannot read is refused: Spark does not start with it. A key that Spark does not
know gets a notice: a server may be another version of Spark, and a jar of the user's may read
settings of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from onyx.errors import Problem
from onyx.model.job import Job
from onyx.model.report import at, nearest, show

FILE = Path(__file__).with_suffix(".txt")
"""A type on a line of its own, below it its keys."""
PREFIX = "spark."
_OF_ANY_NAME = re.compile(
    r"spark\.(executorEnv|driverEnv|hadoop|hive|metrics\.conf|ssl|network|yarn|ml"
    r"|sql\.catalog|(executor|driver|task)\.resource|kubernetes\.[^.]+\.[^.]+|\w+\.io)\..+"
    r"|spark\.(master|app\.name|app\.id|home)"
)
"""Settings with a part that the user chooses, and those that Spark has not as objects."""
_HEAP = frozenset({"spark.driver.memory", "spark.executor.memory"})
"""Given to the JVM as they are, which knows fewer units than Spark."""
_FORMS = {
    "bool": (re.compile(r"true|false", re.IGNORECASE), "true or false"),
    "int": (re.compile(r"[+-]?\d+"), "a whole number"),
    "number": (re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"), "a number"),
    "bytes": (re.compile(r"-?\d+([kmgtp]b?|b)?", re.IGNORECASE), "a size such as 512m or 4g"),
    "time": (re.compile(r"-?\d+(us|ms|s|m|min|h|d)?", re.IGNORECASE), "a time such as 30s or 5min"),
}
_OF_A_HEAP = (re.compile(r"\d+[kmgt]?", re.IGNORECASE), "a size such as 512m or 4g")
_TUNES = re.compile(
    r"spark\.((memory|reducer|speculation|locality|dynamicAllocation|excludeOnFailure|broadcast)"
    r"\..+|speculation|rdd\.compress|cores\.max|default\.parallelism|app\.name|network\.timeout|log\.level"
    r"|(driver|executor)\.(memory|memoryOverhead|memoryOverheadFactor|minMemoryOverhead|cores)"
    r"|driver\.(maxResultSize|host|bindAddress|port)|(driver\.)?blockManager\.port"
    r"|executor\.(instances|heartbeatInterval|pyspark\.memory)|python\.worker\.(reuse|memory)"
    r"|task\.(cpus|maxFailures)|stage\.maxConsecutiveAttempts"
    r"|scheduler\.(mode|(min|max)Registered\w+)|rpc\.(message\.maxSize|askTimeout|lookupTimeout)"
    r"|kryoserializer\.buffer(\.max)?|io\.compression\.\w+\.(blockSize|level|bufferSize)"
    r"|files\.(maxPartitionBytes|openCostInBytes)|cleaner\.periodicGC\.interval"
    r"|ui\.(enabled|port|showConsoleProgress|retained\w+)"
    r"|hadoop\.fs\.s3a\.(bucket\.[a-z0-9.-]+\.)?(endpoint(\.region)?|path\.style\.access"
    r"|connection\.(maximum|timeout|establish\.timeout|request\.timeout|ssl\.enabled)"
    r"|multipart\.(size|threshold)|block\.size|threads\.max|max\.total\.tasks|attempts\.maximum"
    r"|retry\.(limit|interval)|readahead\.range))"
)
_MOSTLY_TUNES = ("spark.sql.", "spark.shuffle.")
_CARRIES_CODE = re.compile(
    r"class|jars|extensions|listener|plugin|provider|serializer|maven|reflect|transpiler|committer"
    r"|commitprotocol|catalogimplementation|\.catalog\.|\.hive\.|\.udt\.|pyspark\.python|redaction"
    r"|warehouse|checkpointlocation|disallowed|schemaurl|jdbc|thriftserver|variable\.substitute"
    r"|artifact|shuffle\.(manager|service|mapstatus)",
    re.IGNORECASE,
)
"""Parts of names below these that name classes, jars, programs or folders, or are guards."""
_REFERENCE = "${"
"""Spark replaces `${env:NAME}` in a value by a variable of its process."""
CHANNEL = "ONYX_SPARK_CONF_ALLOWED"


def spark_notices(job: Job) -> Iterator[Problem]:
    """A notice for each setting in a job that Spark does not know, or that a job may set only where
    the worker's owner says so."""
    if job.spark is not None:
        yield from _unknown("spec.spark.sparkConf", job.spark.spark_conf)
    for index, entry in enumerate(job.catalog):
        given = entry.options.get("sparkConf")
        if isinstance(given, Mapping):
            yield from _unknown(f"{at('spec.catalog', index)}.options.sparkConf", given)


def _unknown(path: str, settings: Mapping[str, Any]) -> Iterator[Problem]:
    known = known_settings() if settings else {}
    for key in settings:
        where = at(path, str(key))
        if not str(key).startswith(PREFIX):
            yield Problem(where, f"has no effect: Spark's settings begin with {PREFIX}")
        elif key not in known and _OF_ANY_NAME.fullmatch(key) is None:
            what = "is no setting of Spark, and has no effect unless a jar of yours reads it"
            yield Problem(where, what, nearest(key, known))
        elif not may_set(str(key)):
            what = f"is refused by workers whose {CHANNEL} does not list it: it does not only tune"
            yield Problem(where, what, "let their owner list it, or set it in spark-defaults.conf")


def malformed(path: str, settings: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with values of settings, at their keys below `path`."""
    known = known_settings() if settings else {}
    for key, value in settings.items():
        wanted = _wanted(str(key), str(value), known.get(str(key), "text"))
        if wanted is not None:
            what = f"is {show(value)}, with which Spark does not start"
            yield Problem(at(path, str(key)), what, wanted)


def _wanted(key: str, value: str, kind: str) -> str | None:
    """What the value should be; None if it is."""
    if "|" in kind:
        one_of, given = kind.split("|"), {each.strip().lower() for each in value.split(",")}
        fits = given <= {each.lower() for each in one_of}
        return None if fits else f"it is one of {', '.join(one_of)}"
    if kind not in _FORMS:
        return None
    form, words = _OF_A_HEAP if key in _HEAP else _FORMS[kind]
    return None if form.fullmatch(value.strip()) else f"it is {words}"


@cache
def known_settings() -> dict[str, str]:
    """The type of each setting, by its key."""
    found, kind = dict[str, str](), ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            found[line.strip()] = kind
        else:
            kind = line
    return found


def may_set(key: str, allowed: tuple[str, ...] = ()) -> bool:
    """Whether a job may set a setting of Spark. `allowed`: patterns of the worker's owner."""
    if any(fnmatchcase(key, pattern) for pattern in allowed):
        return True
    if key.startswith(_MOSTLY_TUNES):
        return _CARRIES_CODE.search(key) is None
    return _TUNES.fullmatch(key) is not None


def refused_settings(
    path: str, settings: Mapping[str, str], allowed: tuple[str, ...] = ()
) -> Iterator[Problem]:
    """Settings that a job may not set, or not with such a value, at their keys below `path`."""
    for key, value in settings.items():
        if not may_set(key, allowed):
            what = "may not be set by a job: it is none of those that only tune Spark"
            hint = (
                f"who starts the workers sets it in spark-defaults.conf, or lists it in {CHANNEL}"
            )
            yield Problem(at(path, key), what, hint)
        elif _REFERENCE in str(value):
            what = f"has {_REFERENCE} in its value, which Spark would replace"
            yield Problem(at(path, key), what, "write the value itself")
