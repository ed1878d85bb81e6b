"""A Spark session of the test's own process, with a JVM beside it.

PySpark keeps the JVM that it starts first for as long as the process lives. Spark's Python workers
import from where that JVM was started, so the next module of tests would not find its own code
there. A session therefore gives up its JVM too, which ends unless it is lent (`lent_jvms`).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onyx.spark.child.environment import environment
from onyx.spark.session.opening import open_session

MASTER = "local[2]"
JVM_ENDS_S = 60.0


@contextmanager
def local_spark(folder: Path, opening: Callable[[], Any] | None = None) -> Iterator[Any]:
    """A session and its JVM, which take seconds: one for a module.

    Args:
        folder: for Spark's temporary files.
        opening: opens the session; without it, a plain one is opened.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)  # PySpark leaves it behind
        for key, value in environment(MASTER, str(folder)).items():
            patch.setenv(key, value)
        try:
            session = opening() if opening else open_session(MASTER, "onyx tests", folder, {})
            try:
                yield session
            finally:
                session.stop()
        finally:
            _end_jvm()


def _end_jvm() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    # A JVM that is lent goes on, and threads that wait for its calls would not end with it.
    server = gateway._callback_server
    for each in [*gateway._gateway_client.deque, *(server.connections if server else ())]:
        with contextlib.suppress(AttributeError, OSError):  # it is closed just now
            each.socket.shutdown(socket.SHUT_RDWR)
    gateway.close()
    gateway.proc.stdin.close()  # for which the JVM waits
    gateway.proc.wait(JVM_ENDS_S)
