"""`python -m onyx.spark.pods server FILE` and `python -m onyx.spark.pods executor`.

The process becomes the program, so that signals of Kubernetes reach the JVM and its exit code is
that of the pod. Spark writes the files of users to the current folder, where a pod may not write;
so it runs in the temporary one, and modules of the folder before are still found.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from onyx.errors import OnyxError, SettingsError
from onyx.java import java_home_for_spark
from onyx.spark.child.environment import named_user
from onyx.spark.pods.programs import ProgramCall, SparkInstallation, executor, server

USAGE = "usage: python -m onyx.spark.pods server PROPERTIES_FILE | executor"


def main(arguments: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Become the program."""
    try:
        call = _call(arguments, variables)
        named = named_user(Path(tempfile.gettempdir()))
    except OnyxError as error:
        sys.exit(f"onyx: {error}")
    paths = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), os.getcwd()]))
    environment = {**variables, **named, **call.variables, "PYTHONPATH": paths}
    os.chdir(tempfile.gettempdir())
    os.execve(call.arguments[0], call.arguments, environment)  # noqa: S606 - without a shell


def _call(arguments: Sequence[str], variables: Mapping[str, str]) -> ProgramCall:
    match list(arguments):
        case ["server", properties]:
            return server(_installed(), Path(properties), variables)
        case ["executor"]:
            return executor(_installed(), variables)
        case _:
            raise SettingsError(USAGE)


def _installed() -> SparkInstallation:
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise SettingsError("PySpark is not installed: pip install 'onyx-on-kubernetes[spark]'")
    return SparkInstallation(Path(package.origin).parent, java_home_for_spark(), sys.executable)


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
