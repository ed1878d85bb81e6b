"""The syntax of names, and words of predicates and times. Names of what comes with Onyx are in the
tables `model.kinds` and `model.plugins`.

A name ends up in log entries, metric labels, staging directories and Kubernetes objects, so the
alphabet is what all of them take. A function is named `package.module:name`; the name has no dots,
so that it cannot reach through a module to something else (`fns:os.system`).
"""

from __future__ import annotations

import re
from functools import cache

NAME = r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
"""The name of tasks, windows and triggers: at most 63 characters."""
JOB_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
"""The name of a job: a DNS label, because a Kubernetes object is called so."""
JOB_NAME_CHARACTERS_MAX = 63
CLUSTER_NAME = r"[a-z]([a-z0-9-]{0,43}[a-z0-9])?"
"""The name of a cluster: short enough for the labels of the pods that are called after it."""
MODULE = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
FUNCTION = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z][A-Za-z0-9_]*"
"""`package.module:name`, ASCII identifiers; the name has no dot and no leading underscore."""
FUNCTION_CHARACTERS_MAX = 255

RESERVED_NAMES = ("all", "none", "coordinator")
"""Words with a meaning of their own where a task may be named."""

COMBINATORS = ("and", "or", "not")
"""Make one predicate of others."""
COMPARISONS = (">", ">=", "<", "<=", "==", "!=", "in", "is-null")
"""Predicates that need no function: `[">", key, value]`, `["in", key, [value...]]`,
`["is-null", key]`."""

SQL = "sql"
"""Makes a predicate of an expression of SQL: `["sql", "km / hours > 50"]`."""

REFINEMENTS = ("accumulating", "discarding")

TIME_UNITS = (
    "milliseconds", "millisecond", "seconds", "second", "minutes", "minute",
    "hours", "hour", "days", "day",
)  # fmt: skip
UNIT_MS = {
    "millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000,
}  # fmt: skip
"""Milliseconds of a unit of time."""
ELEMENT_UNITS = ("elements", "element")

_NAME = re.compile(NAME + r"\Z")
_JOB_NAME = re.compile(JOB_NAME + r"\Z")
_CLUSTER_NAME = re.compile(CLUSTER_NAME + r"\Z")
_FUNCTION = re.compile(FUNCTION + r"\Z")


def is_name(text: str) -> bool:
    """Whether a task, window or trigger may be called so."""
    return _NAME.match(text) is not None


def is_job_name(text: str) -> bool:
    """Whether a job may be called so."""
    return _JOB_NAME.match(text) is not None


def as_job_name(text: str) -> str:
    """The name of a job after that of a file or folder: what jobs may not have becomes `-`; empty
    if nothing is left."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return "-".join(words)[:JOB_NAME_CHARACTERS_MAX].rstrip("-")


def is_cluster_name(text: str) -> bool:
    """Whether a cluster may be called so."""
    return _CLUSTER_NAME.match(text) is not None


def is_function(text: str) -> bool:
    """Whether a text has the form of a function's name, `package.module:name`."""
    return len(text) <= FUNCTION_CHARACTERS_MAX and _FUNCTION.match(text) is not None


@cache
def yaml_key(attribute: str) -> str:
    """The YAML key of an attribute, by the one rule: `batch_size` is written `batchSize`."""
    first, *rest = attribute.split("_")
    return first + "".join(word.capitalize() for word in rest)
