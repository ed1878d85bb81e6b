"""Errors of the source as a user of Spark sees them: one line.

PySpark puts the whole traceback of a Python process before the message, which is of the frames of
PySpark and of this source and tells a user nothing. It leaves the traceback out if an environment
variable asks for that, and ends the process with the error. So the variable is set in a process
that Spark made for Python, when an error for the user goes through it. Anything else that goes
wrong keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from onyx.errors import OnyxError

HIDE = "SPARK_HIDE_TRACEBACK"
"""Read by `pyspark.util.handle_worker_exception`."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """Also a decorator. Errors of Onyx that go through it are shown without a traceback."""
    try:
        yield
    except OnyxError:
        if _is_of_spark():
            os.environ[HIDE] = "1"
        raise


def _is_of_spark() -> bool:
    """Whether this process executes Python for a JVM, and is not the user's own."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
