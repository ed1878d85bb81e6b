"""Settings of Spark that are unknown or malformed, told before Spark is started with them.

The table beside this module has the key and the type of each setting, as Spark's own jars have it.
A value that Spark cannot read is refused: Spark does not start with it. A key that Spark does not
know is told as a notice: a server may be another version of Spark, and a jar of the user's may read
settings of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from onyx.errors import Problem
from onyx.model.job import Job
from onyx.model.report import at, nearest, show
from onyx.model.spark_rights import CHANNEL, may_set

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
