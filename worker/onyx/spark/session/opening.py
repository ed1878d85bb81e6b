"""A Spark session for one stage: quiet, modest, and away from the user's folder.

Used only in the Spark child (`child.serve`), which ends with it. Everything that Spark likes to
leave in the current directory goes to a scratch directory that is removed afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onyx.errors import SettingsError, Unavailable
from onyx.spark.session.connect import open_connect
from onyx.spark.session.masters import is_connect, is_local

DRIVER_MEMORY = "1g"
"""Heap of the JVM unless `sparkConf` says otherwise: enough to aggregate some 100 million rows."""
LOCAL_SHUFFLE_PARTITIONS = "8"
"""Spark's default of 200 costs a local stage seconds of scheduling; adaptive execution still
splits what is large."""


def configuration(master: str, scratch: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a stage; `extra` (`sparkConf` of the task) wins.

    A local master talks to itself only: on the loopback address, with a secret. A cluster
    (`spark://`) has to reach the driver, and its own address and secret are its user's.
    """
    temporary = scratch / "tmp"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary} "
        f"-Dderby.system.home={temporary} -Duser.home={temporary} "
        "-XX:-UsePerfData -XX:+UseSerialGC",
        "spark.local.dir": str(scratch / "local"),
        "spark.jars.ivy": str(scratch / "ivy"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if is_local(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.authenticate": "true",
            "spark.sql.shuffle.partitions": LOCAL_SHUFFLE_PARTITIONS,
        }
    return settings | dict(extra)


def open_session(master: str, name: str, scratch: Path, extra: Mapping[str, str]) -> Any:
    """A new SparkSession.

    Raises:
        SettingsError: PySpark is not installed.
        UserError: `extra` has what a Spark Connect server does not let a session set.
        Unavailable: Spark does not start, or the master cannot be reached.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SettingsError(
            "the output plugin `spark` needs PySpark: pip install 'onyx-on-kubernetes[spark]'"
        ) from error
    for folder in ("tmp", "local", "warehouse"):
        (scratch / folder).mkdir(parents=True, exist_ok=True)
    if is_connect(master):
        return open_connect(master, extra)
    builder = SparkSession.builder.appName(name)
    try:
        for key, value in configuration(master, scratch, extra).items():
            builder = builder.config(key, value)
        session = builder.master(master).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise Unavailable(f"Spark with master {master!r} does not start: {text}") from error
    return session
