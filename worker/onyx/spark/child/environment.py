"""The environment of a child process that runs Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from onyx.java import java_home_for_spark
from onyx.rights import rights_of
from onyx.settings import from_environment
from onyx.spark.session import token, user_name
from onyx.spark.session.masters import is_local

_ELSEWHERE = {
    "MASTER",
    "SPARK_API_MODE",
    "SPARK_CONNECT_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_LOCAL_REMOTE",
    "SPARK_REMOTE",
}
"""Variables by which PySpark runs elsewhere than the task says; some it sets by itself."""


def inherited() -> dict[str, str]:
    """What a child takes over from this process: variables, and the modules that we can import. A
    child that began with other ones serves no request of now."""
    return {
        **{name: value for name, value in os.environ.items() if name not in _ELSEWHERE},
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _shows_token(master: str, variables: Mapping[str, str]) -> bool:
    """Whether PySpark may have its own variable with a token, which it shows to any server behind
    TLS: one that a job names gets what the owner of the worker lets jobs name."""
    if token.is_own(master, variables):
        return not variables.get(token.FILE_VARIABLE)  # with both PySpark would speak TLS
    rights = rights_of(from_environment(variables))
    return rights.why_not_variable(token.OF_PYSPARK) is None


def environment(
    master: str, scratch: str, taken: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Ours, with a Java that Spark can use and the modules that we can import.

    The child and Spark's own Python workers must find the user's code. Where Spark runs is for the
    job to say: a worker whose user has used Spark Connect would start no other master any more.

    Arguments:
        master: where Spark is to run.
        scratch: folder for temporary files.
        taken: `inherited()`, if the caller has asked for it.

    Raises:
        SettingsError: there is no Java that Spark can use, or this user has no name.
    """
    found = {
        **(inherited() if taken is None else taken),
        "TMPDIR": scratch,
        "JAVA_HOME": str(java_home_for_spark()),
        **user_name.environment(Path(scratch)),
    }
    if not _shows_token(master, found):
        found.pop(token.OF_PYSPARK, None)
    if is_local(master):  # a machine whose own name does not resolve is no obstacle
        found.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return found
