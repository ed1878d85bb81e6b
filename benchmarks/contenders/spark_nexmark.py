"""Nexmark in Spark SQL over whole tables. `python spark_nexmark.py QUERY COLUMN FOLDER SCRATCH`

The column of the result is added up. The query runs twice in one session of one thread, and the
second run counts: a JVM that has compiled its code.
"""

from __future__ import annotations

import sys
from typing import Any

from spark_stream import session_of, tree_cpu_s

WINNERS = """
    select * from
        (select bids.*, category, seller, expires, row_number() over
            (partition by id order by price desc, bids.date_time, bidder) as rank
         from bids join auctions
         on auction = id and bids.date_time between auctions.date_time and expires)
    where rank = 1
"""
SQL = {
    "q0": "select * from bids",
    "q1": "select auction, bidder, price * 908 div 1000 as price, date_time from bids",
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """
        select auctions.id as auction, name, city from auctions join persons
        on seller = persons.id
        where category = 3 and city in ('Boise', 'Portland', 'San Francisco')
    """,
    "q5": """
        with counts as (
            select until, auction, count(*) as bids
            from (select auction, explode(sequence(date_time div 2000, date_time div 2000 + 4))
                  as until from bids)
            group by until, auction)
        select auction from
            (select *, max(bids) over (partition by until) as most from counts)
        where bids = most
    """,
    "q7": """
        with highest as (
            select date_time div 10000 as start, max(price) as price from bids group by 1)
        select bids.* from bids join highest
        on bids.date_time div 10000 = highest.start and bids.price = highest.price
    """,
    "q4": f"select category, sum(price) div count(*) as price from ({WINNERS}) group by category",
    "q6": f"""
        select seller, sum(price) div count(*) as price from
            (select *, row_number() over
                (partition by seller order by expires desc, auction desc) as place
             from ({WINNERS}))
        where place <= 10 group by seller
    """,
    "q9": WINNERS,
    "q13": "select bids.*, value from bids join side on key = auction % 10000",
    "q8": """
        select id as person, name, persons.date_time div 10000 as start from persons
        left semi join auctions
        on seller = persons.id and persons.date_time div 10000 = auctions.date_time div 10000
    """,
}


def main(query: str, column: str, folder: str, scratch: str) -> None:
    session = session_of(scratch)
    for kind in ("persons", "auctions", "bids"):
        session.read.parquet(f"{folder}/{kind}-*.parquet").createOrReplaceTempView(kind)
    session.read.parquet(f"{folder}/side-input.parquet").createOrReplaceTempView("side")
    answer(session, query, column)
    before = tree_cpu_s()
    found = answer(session, query, column)
    print("CPU", tree_cpu_s() - before)
    print("ANSWER", *found, flush=True)
    session.stop()


def answer(session: Any, query: str, column: str) -> tuple[int, int]:
    count, total = session.sql(f"select count(*), sum({column}) from ({SQL[query]})").first()
    return count, total or 0


if __name__ == "__main__":
    main(*sys.argv[1:])
