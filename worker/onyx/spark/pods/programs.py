"""How Spark's own programs are started from the image of a worker: pure, from variables to a call.

PySpark's package has the jars and no image, so neither an entry point of a server that stays in the
foreground nor one of an executor. `spark-submit` starts the server, as Spark's own script does.
Spark's Kubernetes backend starts executors with the argument `executor` and variables of its own;
the call is that of `entrypoint.sh` in Spark's own image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from onyx.errors import SettingsError
from onyx.spark.session import connect

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
EXECUTOR_CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_EXECUTOR_VARIABLES = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_SERVER_SETTINGS = {
    "spark.kubernetes.driver.pod.name": "ONYX_POD_NAME",
    "spark.driver.host": "ONYX_POD_IP",
}


class SparkInstallation(msgspec.Struct, frozen=True):
    """Where things are on this machine."""

    spark_home: Path
    """The package of PySpark."""
    java_home: Path
    python: str
    """The interpreter with the user's modules: that of Spark's Python workers, too."""


class ProgramCall(msgspec.Struct, frozen=True):
    """A program, and the variables that it has in addition to ours."""

    arguments: tuple[str, ...]
    variables: Mapping[str, str]


def server(installed: SparkInstallation, properties: Path, given: Mapping[str, str]) -> ProgramCall:
    """A Spark Connect server.

    Args:
        properties: a file of Spark's settings.
        given: variables, of which `ONYX_POD_NAME` is the pod that it runs in, which owns the pods
            of the executors, and `ONYX_POD_IP` where these reach it. A name in the DNS, which they
            would outlive, may not be there yet when the first of them starts. A client must show
            the token in the file `ONYX_SPARK_TOKEN_FILE`.

    Raises:
        SettingsError: the token cannot be read.
    """
    submit = str(installed.spark_home / "bin" / "spark-submit")
    arguments = (submit, "--class", SERVER_CLASS, "--properties-file", str(properties))
    known = ((key, given.get(variable, "")) for key, variable in _SERVER_SETTINGS.items())
    of_pod = (part for key, value in known if value for part in ("--conf", f"{key}={value}"))
    file = given.get(connect.FILE_VARIABLE)
    shown = {connect.OF_PYSPARK: connect.read_token(Path(file))} if file else {}
    return ProgramCall((*arguments, *of_pod, "spark-internal"), {**_variables(installed), **shown})


def executor(installed: SparkInstallation, given: Mapping[str, str]) -> ProgramCall:
    """An executor.

    Args:
        given: the variables that Spark's backend has set.

    Raises:
        SettingsError: one is missing.
    """
    missing = [name for name in _needed() if not given.get(name)]
    if missing:
        raise SettingsError(
            f"this is no pod that Spark has made: {', '.join(missing)} is not set; Spark starts "
            "its executors itself"
        )
    options = sorted(
        (int(found[1]), value)
        for name, value in given.items()
        if (found := _JAVA_OPTION.fullmatch(name))
    )
    memory = given["SPARK_EXECUTOR_MEMORY"]
    jars = f"{installed.spark_home}/jars/*"
    classpath = ":".join(filter(None, [given.get("SPARK_CLASSPATH"), jars]))
    arguments = (
        str(installed.java_home / "bin" / "java"),
        *(value for _, value in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        classpath,
        EXECUTOR_CLASS,
        *(part for flag, name in _EXECUTOR_VARIABLES.items() for part in (flag, given[name])),
    )
    return ProgramCall(arguments, _variables(installed))


def _needed() -> tuple[str, ...]:
    return (*_EXECUTOR_VARIABLES.values(), "SPARK_EXECUTOR_MEMORY")


def _variables(installed: SparkInstallation) -> dict[str, str]:
    return {
        "SPARK_HOME": str(installed.spark_home),
        "JAVA_HOME": str(installed.java_home),
        "PYSPARK_PYTHON": installed.python,
        "PYSPARK_DRIVER_PYTHON": installed.python,
    }
