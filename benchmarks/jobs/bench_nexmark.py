"""The output of the Nexmark jobs when they are measured: how many rows, and the sum of a column."""

import pyarrow.compute as pc
from bench_tasks import Answer


def tally(rows, key):
    """Rows are a list of dicts or a record batch."""
    if isinstance(rows, list):
        Answer.count += len(rows)
        Answer.total += sum([row[key] for row in rows])
    else:
        Answer.count += rows.num_rows
        Answer.total += pc.sum(rows[key]).as_py() or 0


def prices(rows):
    tally(rows, "price")


def auctions(rows):
    tally(rows, "auction")


def persons(rows):
    tally(rows, "person")
