"""A stage that is a query of Spark: the frames are views, and the text says what is made of them.

Invariant: the text reads the views and the tables of Spark's catalog, and changes nothing. It is
the inner select of another one, so no command gets through. A session for it reads no files by
their paths, and puts no variables into the text. `query_text` refuses what runs code.
"""

from __future__ import annotations

from typing import Any

from onyx.spark.child.request import StageRequest
from onyx.spark.session.blame import blame

VIEW = "segments"
"""What the only frame is called."""
_CLOSED = {"spark.sql.runSQLOnFiles": "false", "spark.sql.variable.substitute": "false"}


def queried(session: Any, frames: list[tuple[str | None, Any]], request: StageRequest) -> Any:
    """The DataFrame of a query.

    Args:
        frames: by name, or the only one.
    """
    assert request.query is not None, "it asks for one"
    for name, frame in frames:
        frame.createOrReplaceTempView(name or VIEW)
    for key, value in _CLOSED.items():
        session.conf.set(key, value)
    try:
        inner = f"select * from ({request.query.strip().rstrip(';')}\n)"  # noqa: S608
        return session.sql(inner, args=request.params or None)
    except Exception as error:
        raise blame(error, of_user=True).error() from error
