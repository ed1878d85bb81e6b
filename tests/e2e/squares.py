"""The user's code of these tests: given to the workers as a file, as the chart allows."""

import time

HUNGRY = 150
CHUNK_BYTES = 8 << 20


def square(segment):
    return {"n": segment["n"], "square": segment["n"] ** 2}


def hungry_square(segment):
    """For one number no worker has enough memory."""
    taken = []
    while segment["n"] == HUNGRY:
        taken.append(b"x" * CHUNK_BYTES)
    return square(segment)


def square_of_group(segment):
    return {**square(segment), "group": segment["n"] % 8}


def counted(segment, state):
    """How many segments of its group have come, this one included."""
    state.count = (state.count or 0) + 1
    return {"group": segment["group"], "count": state.count}


def total(event, window, trigger, state_event, total):
    """The squares of a group in an extent of a window, added up."""
    return {"group": state_event["group_key"], "from": state_event["lower_bound"], "total": total}


def slowly(batches):
    """Two seconds for each partition, so that an executor can be lost meanwhile."""
    time.sleep(2)
    yield from batches


def slow_sums(frame):
    """A stage of Spark: the sums of the squares of the numbers with the same residue."""
    from pyspark.sql import functions

    spread = frame.repartition(8).mapInArrow(slowly, frame.schema)
    residue = (functions.col("n") % 8).alias("residue")
    return spread.groupBy(residue).agg(functions.sum("square").alias("total"))
