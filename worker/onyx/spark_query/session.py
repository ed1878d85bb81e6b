"""The Spark of a query. Its JVM starts before this process has imported what else it needs: that
takes a second or two of the time in which a job that comes back is waited for.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from onyx.errors import Unavailable
from onyx.spark.driver.request import QueryRequest
from onyx.spark.session.masters import is_connect
from onyx.spark.session.opening import begin_session, open_session

ROWS_A_BATCH = {"spark.sql.execution.arrow.maxRecordsPerBatch": "64"}
"""Rows are whole batches of segments, so few go to Python at once."""


def begin(request: QueryRequest) -> None:
    """Have the JVM of the query start, if it has one of its own. What is wrong with it, `opened`
    says."""
    with contextlib.suppress(ImportError, OSError, Unavailable):
        begin_session(*_how(request))


def opened(request: QueryRequest) -> Any:
    """A session of Spark for the query.

    Raises:
        SettingsError: PySpark is not installed.
        UserError: a setting cannot be set.
        Unavailable: Spark does not start, or cannot be reached.
    """
    return open_session(*_how(request))


def ui_url(spark: Any) -> str | None:
    """Where Spark shows what it does; None if nobody knows."""
    try:
        url = spark.sparkContext.uiWebUrl
    except Exception:  # a Connect session has no context
        return None
    return None if url is None else str(url)


def _how(request: QueryRequest) -> tuple[str, str, Path, dict[str, str], bool]:
    """The work of a query without end is in Python, and it has to be back soon."""
    rows = {} if is_connect(request.master) else ROWS_A_BATCH
    conf = {**rows, **request.spark_conf}
    return request.master, f"onyx: {request.job_id}", Path(request.scratch), conf, request.endless
