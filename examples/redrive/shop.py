"""Prices orders. What nobody has priced yet fails."""

import json
from pathlib import Path


def price(order):
    prices = json.loads(Path("prices.json").read_text())
    return {**order, "total": prices[order["item"]] * order["count"]}
