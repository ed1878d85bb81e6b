"""The queries on columns: what `batchFormat: arrow` calls, each time with a whole record batch.

Windows give their results one by one in both formats, so what triggers emit is in `dicts`.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WINDOW_MS = 10_000


def in_euros(bids):
    """q1"""
    euros = pc.divide(pc.multiply(bids["price"], 908), 1000)
    return bids.set_column(bids.schema.get_field_index("price"), "price", euros)


def few_auctions(bids):
    """q2: a result with fewer rows keeps `__row__`, which says from which row each comes."""
    few = pa.array(bids["auction"].to_numpy() % 123 == 0)
    return bids.filter(few).select(["auction", "price", "__row__"])


def candidates(bids):
    """q7: of each ten seconds the highest bids of this batch; the others cannot win."""
    windows, prices = bids["date_time"].to_numpy() // WINDOW_MS, bids["price"].to_numpy()
    found, of = np.unique(windows, return_inverse=True)
    highest = np.zeros(len(found), np.int64)
    np.maximum.at(highest, of, prices)
    return bids.filter(pa.array(prices == highest[of]))


def registers(persons):
    """q8"""
    return pa.record_batch(
        {
            "person": persons["id"],
            "event": pa.repeat("registers", len(persons)),
            "name": persons["name"],
            "date_time": persons["date_time"],
        }
    )


def sells(auctions):
    """q8"""
    return pa.record_batch(
        {
            "person": auctions["seller"],
            "event": pa.repeat("sells", len(auctions)),
            "name": pa.nulls(len(auctions), pa.string()),
            "date_time": auctions["date_time"],
        }
    )


def in_time(pairs):
    """q9: of each auction the highest bids of this batch, while it is open; others cannot win."""
    pairs = pairs.filter(pc.less_equal(pairs["bid_date_time"], pairs["expires"]))
    found, of = np.unique(pairs["id"].to_numpy(), return_inverse=True)
    prices, highest = pairs["bid_price"].to_numpy(), np.zeros(len(found), np.int64)
    np.maximum.at(highest, of, prices)
    return pairs.filter(pa.array(prices == highest[of]))


def with_key(bids):
    """q13"""
    return bids.append_column("key", pa.array(bids["auction"].to_numpy() % 10_000))
