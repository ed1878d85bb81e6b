"""Whether all rows of a micro-batch were made from the same readings of its inputs.

Spark may run a task again in the middle of a batch, when an executor is lost with the rows that it
had made. An input that is read again may give more than before, and buckets that were done by then
have had the first reading. What is then committed would lack rows, or have some twice. So each
origin draws a number whenever it runs. Its ending brings it to every bucket, each bucket reports
what it has heard, and a batch of which two buckets have heard different numbers is not committed.

What one task of Spark reports goes to one bucket behind the next shuffle, so it is of one run.
Rejected: to keep what was read until the batch is committed, which is a copy of all.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from onyx.base.structs import prepared
from onyx.errors import Unavailable
from onyx.spark.driver.request import BucketState
from onyx.spark_query.arrivals import origins
from onyx.spark_query.programs import Query
from onyx.spark_query.rows import Row

BITS = 62
BYTES = 8


class ReadAgain(Unavailable):
    """Spark has read inputs again in the middle of a micro-batch."""


@prepared
class Report(msgspec.Struct, frozen=True):
    """What a bucket reports behind a micro-batch."""

    state: BucketState
    heard: int
    """The readings of all endings, each exclusive-or the rest: the same in any order."""


def new_reading() -> int:
    """A number that no other run has."""
    return secrets.randbits(BITS)


def of_ending(reading: int) -> bytes:
    """The payload of an ending."""
    return reading.to_bytes(BYTES, "big")


def heard(before: int, ending: Row) -> int:
    """What a bucket has heard, with one more ending."""
    return before ^ int.from_bytes(ending.payload, "big")


def states_of_buckets(query: Query, rows: Sequence[Row], number: int) -> list[BucketState]:
    """What the buckets report of a micro-batch.

    Args:
        rows: what all fragments report.

    Raises:
        ReadAgain: the batch is not of one reading of its inputs.
    """
    readings = {row.origin: row.mark for row in rows if row.kind in ("position", "held")}
    found: list[BucketState] = []
    for row in rows:
        if row.kind != "held":
            continue
        report = msgspec.json.decode(row.payload, type=Report)
        expected = 0
        for origin in origins(query, row.task):
            expected ^= readings.get(origin) or 0
        if report.heard != expected:
            raise ReadAgain(
                f"Spark has read inputs again in the middle of micro-batch {number}, as when an "
                f"executor is lost: task {row.task} has rows of both readings; the batch is "
                "repeated"
            )
        found.append(report.state)
    return found
