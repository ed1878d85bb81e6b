"""Random rows whose values are hard to keep: keys that are equal across types, nulls, moments with
fractions, ints beyond 53 bits. Numbers that are added up are multiples of a quarter, so that sums
do not depend on their order."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

EPOCH = datetime.datetime(2026, 3, 29, tzinfo=datetime.UTC)
Draw = Callable[[Random], Any]


@dataclass(frozen=True)
class Kind:
    """A type of a column, and what is drawn for it."""

    type: pa.DataType
    draw: Draw
    literals: bool = True
    """Whether a predicate of a job may compare it with a value."""


def _moment(random: Random) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=random.choice([0, 1, 999, 1_000, 10**6]))


KEYS: Mapping[str, Kind] = {
    "text": Kind(pa.string(), lambda r: r.choice(["", "a", "A", "ä", "a ", "7", "x" * 70])),
    "small": Kind(pa.int8(), lambda r: r.randint(-2, 2)),
    "large": Kind(pa.int64(), lambda r: r.choice([0, -1, 2**53, 2**53 + 1, 2**63 - 1])),
    "unsigned": Kind(pa.uint64(), lambda r: r.choice([0, 1, 2**63, 2**64 - 1]), False),
    "float": Kind(pa.float64(), lambda r: r.choice([0.0, -0.0, 0.5, 2.0, 1e300])),
    "flag": Kind(pa.bool_(), lambda r: r.random() < 0.5),
    "decimal": Kind(pa.decimal128(9, 2), lambda r: Decimal(r.randint(-3, 3)) / 4, False),
    "day": Kind(pa.date32(), lambda r: (EPOCH + datetime.timedelta(r.randint(0, 3))).date()),
    "moment": Kind(pa.timestamp("us", "UTC"), _moment),
}
NUMBERS: Mapping[str, Kind] = {
    "int": Kind(pa.int64(), lambda r: r.randint(-1000, 1000)),
    "float": Kind(pa.float64(), lambda r: r.randint(-1000, 1000) / 4),
    "decimal": Kind(pa.decimal128(12, 2), lambda r: Decimal(r.randint(-1000, 1000)) / 4),
}


def column(random: Random, kind: Kind, count: int, nulls: bool) -> pa.Array:
    """So many values, a fifth of them null if there may be any."""
    values = [None if nulls and random.random() < 0.2 else kind.draw(random) for _ in range(count)]
    return pa.array(values, kind.type)
