"""A transaction with bounded waits for locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, func, select

from onyx.plugins.sql.engine import IDLE_TIMEOUT_S, LOCK_TIMEOUT_S

_BOUNDED = select(
    func.set_config("lock_timeout", f"{LOCK_TIMEOUT_S}s", True),
    func.set_config("idle_in_transaction_session_timeout", f"{IDLE_TIMEOUT_S}s", True),
)
"""Limits of PostgreSQL, for one transaction."""


@contextmanager
def bounded_transaction(engine: Engine) -> Iterator[Connection]:
    """Committed at the end; rolled back after an exception."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(_BOUNDED)
        yield connection
