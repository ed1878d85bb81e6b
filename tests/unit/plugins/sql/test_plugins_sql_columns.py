"""What columns of databases take, and what would be stored as something else."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import JSON, Column, types

from onyx.plugins.sql.rows import converter

NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (types.Date(), dt.date(2026, 1, 2)),
        (types.Time(), dt.time(3, 4)),
        (types.Numeric(), Decimal("1.50")),
        (types.Float(), 1.5),
        (JSON(), {"a": [1, None]}),
    ],
)
def test_a_column_takes_the_type_that_it_is_for(kind: Any, value: Any) -> None:
    for dialect in ("sqlite", "postgresql"):
        assert converter(Column("c", kind), dialect)(value) == value


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (types.Float(), NAN, "NaN"),
        (types.Numeric(), NAN, "NaN"),
        (types.Numeric(), Decimal("Infinity"), "infinity"),
        (JSON(), {"a": NAN}, "JSON"),
        (types.NullType(), NAN, "NaN"),
    ],
)
def test_what_the_database_would_store_as_something_else_is_refused(
    kind: Any, value: Any, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        converter(Column("c", kind), "sqlite")(value)


def test_json_has_decimals_and_times_as_text() -> None:
    value = {"price": Decimal("1.50"), "day": dt.date(2026, 1, 2)}
    found = converter(Column("c", JSON()), "postgresql")(value)
    assert found == {"price": "1.50", "day": "2026-01-02"}


def test_nan_is_a_number_to_postgresql() -> None:
    found = converter(Column("c", types.Float()), "postgresql")(NAN)
    assert found != found
