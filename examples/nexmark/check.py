"""Compares what jobs wrote with pandas: `python check.py [q5 ...]`. Exit code 0: all agree.

Without names, all queries are checked that have written to `out/`. Remove that folder before a job
runs again: parts of two runs have every row twice.
"""

import sys
from pathlib import Path

from nexmark.answers import QUERIES, agree, answer, written

HERE = Path(__file__).parent


def check(query, data=HERE / "data", out=HERE / "out"):
    """Whether a query, such as q5 or q5-columns, wrote the answer."""
    found, expected = written(out / query), answer(query.removesuffix("-columns"), data)
    same = agree(found, expected)
    print(
        f"{query}: {len(found):,} rows, pandas {len(expected):,}: {'agrees' if same else 'DIFFERS'}"
    )
    return same


if __name__ == "__main__":
    names = [name for query in QUERIES for name in (query, f"{query}-columns")]
    wanted = sys.argv[1:] or [name for name in names if (HERE / "out" / name).is_dir()]
    agreeing = [query for query in wanted if check(query)]
    sys.exit(0 if wanted and agreeing == wanted else 1)
