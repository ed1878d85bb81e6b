"""Nexmark over whole tables, on one thread: the limit of what a stream can reach.

`python frames_nexmark.py polars|duckdb q5 COLUMN FOLDER`; the column of the result is added up.
"""

from __future__ import annotations

import sys
from typing import Any

WINDOW_MS = 10_000
SLIDE_MS = 2_000


# Polars


def polars_query(query: str, column: str, folder: str) -> Any:
    import polars as pl

    bids = pl.scan_parquet(f"{folder}/bids-*.parquet")
    time = pl.col("date_time")
    start = time // WINDOW_MS
    if query == "q0":
        found = bids
    elif query == "q1":
        found = bids.with_columns(price=pl.col("price") * 908 // 1000)
    elif query == "q2":
        found = bids.filter(pl.col("auction") % 123 == 0).select("auction", "price")
    elif query == "q3":
        cities = ["Boise", "Portland", "San Francisco"]
        persons = pl.scan_parquet(f"{folder}/persons-*.parquet")
        near = persons.filter(pl.col("city").is_in(cities)).select("name", "city", seller="id")
        auctions = pl.scan_parquet(f"{folder}/auctions-*.parquet").filter(pl.col("category") == 3)
        found = auctions.select("seller", auction="id").join(near, on="seller")
    elif query in ("q4", "q6", "q9"):
        found = polars_winners(query, bids, pl.scan_parquet(f"{folder}/auctions-*.parquet"))
    elif query == "q5":
        each = [
            bids.select("auction", until=time // SLIDE_MS + later)
            for later in range(WINDOW_MS // SLIDE_MS)
        ]
        counts = pl.concat(each).group_by("until", "auction").agg(bids=pl.len())
        found = counts.filter(pl.col("bids") == pl.col("bids").max().over("until"))
    elif query == "q7":
        highest = bids.group_by(start.alias("start")).agg(pl.col("price").max())
        found = bids.with_columns(start=start).join(highest, on=["start", "price"])
    elif query == "q13":
        table = pl.scan_parquet(f"{folder}/side-input.parquet")
        found = bids.with_columns(key=pl.col("auction") % 10_000).join(table, on="key")
    else:
        persons = pl.scan_parquet(f"{folder}/persons-*.parquet")
        auctions = pl.scan_parquet(f"{folder}/auctions-*.parquet")
        sold = auctions.select(person="seller", start=start).unique()
        found = persons.select("name", person="id", start=start).join(sold, on=["person", "start"])
    return found.select(pl.len(), pl.col(column).sum().alias("sum")).collect().row(0)


def polars_winners(query: str, bids: Any, auctions: Any) -> Any:
    """Queries about the winning bid of each auction."""
    import polars as pl

    price = pl.col("price")
    opened = auctions.select("expires", "category", "seller", auction="id", opened="date_time")
    pairs = bids.join(opened, on="auction").filter(
        pl.col("date_time").is_between("opened", "expires")
    )
    ranked = pairs.sort(-price, "date_time", "bidder")
    its = ["price", "bidder", "date_time", "expires", "category", "seller"]
    found = ranked.group_by("auction").agg(pl.col(its).first())
    if query == "q9":
        return found
    if query == "q4":
        return found.group_by("category").agg(price.sum() // pl.len())
    last = found.sort("expires", "auction").group_by("seller").tail(10)
    return last.group_by("seller").agg(price.sum() // pl.len())


# DuckDB


WINNERS = """
    select auction, price, bidder, bids.date_time, expires, category, seller
    from bids join auctions
    on auction = id and bids.date_time between auctions.date_time and expires
    qualify row_number() over (partition by id order by price desc, bids.date_time, bidder) = 1
"""
SQL = {
    "q0": "select * from bids",
    "q1": "select * replace (price * 908 // 1000 as price) from bids",
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """
        select auctions.id as auction, name, city from auctions join persons
        on seller = persons.id
        where category = 3 and city in ('Boise', 'Portland', 'San Francisco')
    """,
    "q4": f"select category, sum(price) // count(*) as price from ({WINNERS}) group by category",
    "q6": f"""
        with last as (
            select * from ({WINNERS})
            qualify 10 >= row_number()
                over (partition by seller order by expires desc, auction desc))
        select seller, sum(price) // count(*) as price from last group by seller
    """,
    "q5": """
        with counts as (
            select until, auction, count(*) as bids
            from (select auction, date_time // 2000 + unnest(range(5)) as until from bids)
            group by all)
        select * from counts qualify bids = max(bids) over (partition by until)
    """,
    "q7": """
        with highest as (
            select date_time // 10000 as start, max(price) as price from bids group by all)
        select bids.* from bids join highest
        on bids.date_time // 10000 = start and bids.price = highest.price
    """,
    "q8": """
        select id as person, name, persons.date_time // 10000 as start from persons
        semi join auctions
        on seller = persons.id and persons.date_time // 10000 = auctions.date_time // 10000
    """,
    "q9": WINNERS,
    "q13": "select * from bids join side on key = auction % 10000",
}


def duckdb_query(query: str, column: str, folder: str) -> Any:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as database:
        for kind in ("persons", "auctions", "bids"):
            files = f"read_parquet('{folder}/{kind}-*.parquet')"
            database.execute(f"create view {kind} as select * from {files}")
        table = f"read_parquet('{folder}/side-input.parquet')"
        database.execute(f"create view side as select * from {table}")
        return database.execute(
            f"select count(*), coalesce(sum({column}), 0) from ({SQL[query]})"
        ).fetchone()


if __name__ == "__main__":
    engine, *arguments = sys.argv[1:]
    print("ANSWER", *{"polars": polars_query, "duckdb": duckdb_query}[engine](*arguments))
