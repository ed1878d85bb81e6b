"""The answers of all queries, computed with pandas in another way than the jobs do it."""

import pandas as pd

WINDOW_MS = 10_000
SLIDE_MS = 2_000


def q0(read):
    return read("bids")


def q1(read):
    bids = read("bids")
    return bids.assign(price=bids["price"] * 908 // 1000)


def q2(read):
    bids = read("bids")
    return bids.loc[bids["auction"] % 123 == 0, ["auction", "price"]]


def q3(read):
    persons, auctions = read("persons"), read("auctions")
    near = persons[persons["city"].isin(["Boise", "Portland", "San Francisco"])]
    near = near.rename(columns={"date_time": "registered"})
    sold = auctions.loc[auctions["category"] == 3, ["id", "seller", "date_time"]]
    sold = sold.rename(columns={"id": "auction"})
    return sold.merge(near, left_on="seller", right_on="id")


def q4(read):
    return averages(winners(read), "category")


def q6(read):
    last = winners(read).sort_values(["expires", "auction"]).groupby("seller").tail(10)
    return averages(last, "seller")


def averages(sold, by):
    """Whole averages of prices."""
    prices = sold.groupby(by)["price"]
    return (prices.sum() // prices.size()).rename("price").reset_index()


def q5(read):
    bids = read("bids")
    first = bids["date_time"] // SLIDE_MS * SLIDE_MS + SLIDE_MS - 1
    each = [
        bids[["auction"]].assign(until=first + later) for later in range(0, WINDOW_MS, SLIDE_MS)
    ]
    counts = pd.concat(each).groupby(["until", "auction"]).size().rename("bids").reset_index()
    return counts[counts["bids"] == counts.groupby("until")["bids"].transform("max")]


def q7(read):
    bids = read("bids")
    bids = bids.assign(until=bids["date_time"] // WINDOW_MS * WINDOW_MS + WINDOW_MS - 1)
    return bids[bids["price"] == bids.groupby("until")["price"].transform("max")]


def q8(read):
    persons, auctions = (
        each.assign(start=each["date_time"] // WINDOW_MS * WINDOW_MS)
        for each in (read("persons"), read("auctions"))
    )
    sold = auctions[["seller", "start"]].drop_duplicates()
    both = persons.merge(sold, left_on=["id", "start"], right_on=["seller", "start"])
    return both[["id", "name", "start"]].rename(columns={"id": "person", "start": "from"})


def q9(read):
    return winners(read)[["auction", "price", "bidder", "date_time"]]


def winners(read):
    """The winning bid of each auction, and what is known of the auction."""
    opened = read("auctions").rename(columns={"date_time": "from"})
    pairs = read("bids").merge(opened, left_on="auction", right_on="id")
    pairs = pairs[pairs["date_time"].between(pairs["from"], pairs["expires"])]
    ranked = pairs.sort_values(["price", "date_time", "bidder"], ascending=[False, True, True])
    return ranked.drop_duplicates("auction")


def q13(read):
    bids = read("bids")
    return bids.assign(key=bids["auction"] % 10_000).merge(read("side-input"), on="key")


QUERIES = {
    "q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8,
    "q9": q9, "q13": q13,
}  # fmt: skip


def answer(query, folder):
    """What a query should write for the files of `generate.py` in a folder."""

    def read(kind):
        files = sorted(folder.glob(f"{kind}*.parquet"))
        return pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)

    return QUERIES[query](read)


def written(folder):
    """What a job wrote: files of either format."""
    parts = [pd.read_json(file, lines=True, convert_dates=False) for file in folder.glob("*.jsonl")]
    parts += [pd.read_parquet(file) for file in folder.glob("*.parquet")]
    return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)


def agree(found, expected):
    """Whether two tables have the same rows, in whatever order, repeats counted."""
    columns = sorted(expected.columns)
    if columns != sorted(found.columns):
        return False
    one, other = (
        table[columns].sort_values(columns, ignore_index=True) for table in (found, expected)
    )
    return one.equals(other.astype(one.dtypes))
