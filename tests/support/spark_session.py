"""A Spark session of the test's own process, with a JVM beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onyx.java import java_home_for_spark
from onyx.spark.session.opening import open_session


@contextmanager
def local_spark(folder: Path, master: str = "local[1]") -> Iterator[Any]:
    """A session; its JVM lives as long as the process, so take one for a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java_home_for_spark()))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = open_session(master, "onyx tests", folder, {})
        try:
            yield session
        finally:
            session.stop()
