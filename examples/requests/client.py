"""Hands orders to the job, and prints what they cost together: `python client.py LOG`."""

from __future__ import annotations

import sys

from onyx import api
from onyx.settings import LogSettings, Settings

ORDERS = [
    {"order": 1, "customer": "ada", "count": 2},
    {"order": 2, "customer": "grace", "count": 5},
    {"order": 3, "customer": "ada", "count": 1},
]


def main(log: str) -> None:
    settings = Settings(tenancy_id="run", log=LogSettings(folder=log))
    with api.appender(settings, "orders") as orders:
        print(orders.call(ORDERS, id="monday"))
        print(orders.call(ORDERS, id="monday"))  # taken once: nothing is ordered twice


if __name__ == "__main__":
    main(sys.argv[1])
