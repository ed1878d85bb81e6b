"""Sessions by Spark: rows and states that are near each other are one, whatever came first.

A row is a session of one coordinate. Sorted by group and first coordinate, a session begins where
the last coordinate of all before is further away than the gap; then sessions are merged as groups
are. That takes one shuffle by group, and Spark sorts on disk what does not fit into memory.

Rejected: `session_window` of Spark, which knows timestamps only, adds the gap to the end, and does
not go on from states; a function over the rows of a group, which would pass through Python.
"""

from __future__ import annotations

from typing import Any

from onyx.spark.windows.plan import DUE, EXTENT, FIRES, FRESH, LOWER, UPPER, SessionRule

NUMBER = "session"
"""Which session of its group a row or state is a part of."""
_BEFORE = "before"


def numbered(rows: Any, gap: int, keys: list[str]) -> Any:
    """Rows and states with the number of their session."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    ordered = Window.partitionBy(EXTENT, *keys).orderBy(LOWER)
    all_before = ordered.rowsBetween(Window.unboundedPreceding, -1)
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.col(_BEFORE)
    begins = F.when(before.isNull() | (F.col(LOWER) > before + gap), 1).otherwise(0)
    found = rows.withColumn(_BEFORE, F.max(UPPER).over(all_before))
    return found.withColumn(NUMBER, F.sum(begins).over(so_far))


def firing(sessions: Any, rule: SessionRule) -> Any:
    """Whole sessions with whether they fire, whether they have got rows since they fired last, and
    the least watermark at which those are due."""
    from pyspark.sql import functions as F

    if FRESH not in sessions.columns:
        return sessions.withColumn(FIRES, F.lit(True))
    due = F.col(UPPER) + rule.delay
    if rule.share is not None:
        length = F.col(UPPER).cast("DOUBLE") - F.col(LOWER).cast("DOUBLE")
        due = F.col(LOWER).cast("DOUBLE") + F.lit(rule.share) * length
    if rule.watermark is None:
        sessions = sessions.withColumn(FIRES, F.lit(True))
    else:
        is_due = due <= F.lit(rule.watermark)
        fires, waits = F.col(FRESH) & is_due, F.col(FRESH) & ~is_due
        sessions = sessions.withColumn(FIRES, fires).withColumn(FRESH, waits)
    return sessions.withColumn(DUE, F.when(F.col(FRESH), F.floor(due)))
