"""A Spark session for one stage: quiet, modest, and away from the user's folder.

Used only in the Spark child (`child.serve`), which ends with it. Everything that Spark likes to
leave in the current directory goes to a scratch directory that is removed afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onyx.errors import SettingsError, Unavailable
from onyx.spark.session.blame import blame
from onyx.spark.session.connect import open_connect, require_one
from onyx.spark.session.jvm import begin, how_ended, launch
from onyx.spark.session.masters import is_connect, is_local, places_of

DRIVER_MEMORY = "1g"
"""Heap of the JVM unless `sparkConf` says otherwise: enough to aggregate some 100 million rows."""
QUICK = " -XX:TieredStopAtLevel=1"
"""The JVM compiles a method once: half of the CPU until the first result (9 in place of 18 s)."""
STOPPED = "stopped SparkContext"
"""In what Spark says once a cluster has not taken it, a minute later."""
LOCAL_SHUFFLE_PARTITIONS = "8"
"""Spark's default of 200 costs a local stage seconds of scheduling; adaptive execution still
splits what is large."""


def configuration(
    master: str, scratch: Path, extra: Mapping[str, str], quick: bool = False
) -> dict[str, str]:
    """Spark's settings for a stage; `extra` (`sparkConf` of the task) wins.

    Args:
        quick: whether the JVM is to start soon, rather than to compute fast later.

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
        f"-XX:-UsePerfData -XX:+UseSerialGC{QUICK if quick else ''}",
        "spark.local.dir": str(scratch / "local"),
        "spark.jars.ivy": str(scratch / "ivy"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # It puts variables of the process into texts of SQL, which come from jobs.
        "spark.sql.variable.substitute": "false",
    }
    if is_local(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.authenticate": "true",
            "spark.sql.shuffle.partitions": LOCAL_SHUFFLE_PARTITIONS,
        }
    return settings | dict(extra)


def begin_session(
    master: str, name: str, scratch: Path, extra: Mapping[str, str], quick: bool = False
) -> None:
    """Start the JVM of a session that `open_session` is asked for soon, with the same arguments.
    Raises OSError, Unavailable."""
    if not is_connect(master):
        _require_master(master)
        _make_folders(scratch)
        begin(_arguments(master, name, scratch, extra, quick))


def open_session(
    master: str, name: str, scratch: Path, extra: Mapping[str, str], quick: bool = False
) -> Any:
    """A new SparkSession.

    Args:
        quick: see `configuration`.

    Raises:
        SettingsError: PySpark is not installed.
        UserError: Spark does not start with `extra`, or a Spark Connect server does not let a
            session set it.
        Unavailable: Spark does not start, or the master cannot be reached.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SettingsError(
            "the output plugin `spark` needs PySpark: pip install 'onyx-on-kubernetes[spark]'"
        ) from error
    _make_folders(scratch)
    if is_connect(master):
        return open_connect(master, extra)
    _require_master(master)
    settings = _arguments(master, name, scratch, extra, quick)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        launch(settings)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    except Exception as error:
        if places_of(master) and STOPPED in str(error):
            raise Unavailable(
                f"what answers at {master} has not taken this application: is it a Spark master, "
                f"of the version that PySpark here has, and with the same secret? ({STOPPED})"
            ) from error
        if died := how_ended():
            raise Unavailable(f"the JVM of Spark {died} while it started") from error
        found = blame(error)
        why = f"{found.message}{_named(extra, found.message)}"
        whole = f"Spark with master {master!r} does not start: {why}"
        raise replace(found, message=whole).error() from error
    return session


def _require_master(master: str) -> None:
    """Raises Unavailable if nothing answers where a master of a cluster should be."""
    if places := places_of(master):
        require_one("Spark master", places)


def _make_folders(scratch: Path) -> None:
    for folder in ("tmp", "local", "warehouse"):
        (scratch / folder).mkdir(parents=True, exist_ok=True)


def _arguments(
    master: str, name: str, scratch: Path, extra: Mapping[str, str], quick: bool
) -> dict[str, str]:
    settings = configuration(master, scratch, extra, quick)
    return {"spark.app.name": name, "spark.master": master, **settings}


def _named(extra: Mapping[str, str], why: str) -> str:
    """The settings of the user that an error seems to be about."""
    found = [f"{key}: {value}" for key, value in extra.items() if key in why or value in why]
    return f" (sparkConf: {', '.join(found)})" if found else ""
