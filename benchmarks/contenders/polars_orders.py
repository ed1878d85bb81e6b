"""The orders job on whole tables: `python polars_orders.py FOLDER OUT`

Three large orders within ten minutes are counted in Python: there are few.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
from bench_orders import LARGE, MINUTE_MS, WITHIN_MS, alert

FOLDER, OUT = map(Path, sys.argv[1:])
TYPES = pl.Struct({"order": pl.Int64, "user": pl.String, "amount": pl.Int64, "at": pl.Int64})


def alerts(large: pl.DataFrame) -> list[dict[str, Any] | None]:
    found, known = [], dict[str, tuple[int, int]]()
    for user, at in large.iter_rows():
        since, count = known.get(user, (at, 0))
        if at >= since + WITHIN_MS:
            found.append(alert(user, since, count))
            since, count = at, 0
        known[user] = since, count + 1
    return found + [alert(user, *each) for user, each in known.items()]


lines = pl.read_csv(
    FOLDER / "orders.jsonl",
    has_header=False,
    separator="\x01",
    quote_char=None,
    new_columns=["raw"],
)
whole = pl.col("raw").str.ends_with("}")
lines.filter(~whole).write_ndjson(OUT / "bad.jsonl")
orders = lines.filter(whole).select(pl.col("raw").str.json_decode(TYPES)).unnest("raw")
known = orders.join(pl.read_csv(FOLDER / "users.csv"), on="user", how="left")
minute = (pl.col("at") // MINUTE_MS * MINUTE_MS).alias("lower")
sums = known.group_by(minute, group="country").agg(state=pl.col("amount").sum())
sums.write_ndjson(OUT / "minutes.jsonl")
large = known.filter(pl.col("amount") >= LARGE).sort("at").select("user", "at")
(OUT / "alerts.jsonl").write_text(
    "".join(json.dumps(each) + "\n" for each in alerts(large) if each is not None)
)
