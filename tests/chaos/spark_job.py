"""Jobs on Spark under chaos: functions slow enough to be killed in the middle, and what they write.

Imported by the workers and by Spark's Python workers. Every segment is computed from its number, so
anybody can say what a job must come to.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from onyx.plugins.registry import build_input

KEYS = 50
SLOW_S = 0.002
NOTES = "ONYX_TEST_NOTES"
"""Variable with a folder, in which whoever calls `slow` leaves a file."""


def row(number: int):
    return {"key": number * 7919 % KEYS, "v": number % 97, "n": number}


def numbers(context):
    """The `generator` as a plugin of the user's, of which nobody knows that it has an end."""
    return build_input("generator", context)


def slow(segment):
    """A segment with its value doubled; a second for each 500 of them."""
    note()
    time.sleep(SLOW_S)
    return {**segment, "v": segment["v"] * 2}


def emit_sum(event, window, trigger, state_event, total):
    return {"key": state_event["group_key"], "sum": total}


def emit_extent(event, window, trigger, state_event, total):
    key, lower = state_event["group_key"], state_event["lower_bound"]
    return {"from": lower, "key": key, "sum": total}


def doubled(frame):
    """A stage in the middle of a job: its segments with their values doubled, slowly."""
    from pyspark.sql import functions as F

    twice = F.udf(_doubled, "long")
    return frame.repartition(2).select("key", twice("v").alias("v"), "n")


def totals(frame):
    """A stage: sums by key, of values that Spark's Python workers have doubled slowly."""
    from pyspark.sql import functions as F

    doubled = F.udf(_doubled, "long")
    return frame.repartition(2).groupBy("key").agg(F.sum(doubled("v")).alias("sum"))


def _doubled(value):
    note()
    time.sleep(SLOW_S)
    return value * 2


def note():
    """Somebody works: with this process id."""
    folder = os.environ.get(NOTES)
    if folder:
        Path(folder, str(os.getpid())).touch()
