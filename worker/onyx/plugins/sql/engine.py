"""Connections to a database, and its errors as errors of Onyx.

A URL may hold a password, so no message shows a URL. No message shows rows: only the first sentence
of the database's message is shown, and parameters are hidden.

Codes decide whether to try again: SQLSTATE of PostgreSQL, result codes of SQLite. For other
databases an operational error counts as one that passes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError,
)

from onyx.errors import OnyxError, Unavailable
from onyx.plugins.options import option_error, task_error
from onyx.plugins.protocol import PluginContext

CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_S = 10
IDLE_TIMEOUT_S = 30
"""PostgreSQL ends an idle transaction after this time: the locks of a stopped process would
block all other writers."""
_POSTGRESQL: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_PASSING_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR")
_PASSING_SQLSTATES = ("08", "25006", "40", "53", "55P03", "57")
"""Connection, a standby that is no longer or not yet the primary, a rollback because of others,
resources (also a full disk), a lock, an operator's intervention."""
_REFUSALS = ("authentication failed", "does not exist", "no pg_hba.conf entry")
"""While a connection is made PostgreSQL gives no code."""


def connect(context: PluginContext, option: str, url: str) -> Engine:
    """An engine for a URL, without speaking to the database.

    Args:
        option: that the URL comes from.

    Raises:
        UserError: it is no URL, or there is no driver for it.
    """
    parsed = _parsed(context, option, url)
    arguments = _POSTGRESQL if parsed.drivername == "postgresql+psycopg" else {}
    try:
        engine = create_engine(
            parsed,
            connect_args=dict(arguments),
            pool_size=1,
            max_overflow=1,
            pool_pre_ping=True,
            hide_parameters=True,
        )
    except (ArgumentError, NoSuchModuleError) as error:
        what = f"names {parsed.drivername!r}, a kind of database that is not known here"
        hint = "postgresql://user@host/database and sqlite:///path are"
        raise option_error(context, option, f"{what}; {hint}") from error
    except ModuleNotFoundError as error:
        what = f"names {parsed.drivername!r}, whose driver {error.name!r} is not installed"
        raise option_error(context, option, f"{what} on this worker") from error
    if engine.dialect.is_async:
        what = f"names {parsed.drivername!r}, a driver for asyncio; take one that is not"
        raise option_error(context, option, what)
    return engine


@contextlib.contextmanager
def explained(context: PluginContext, doing: str) -> Iterator[None]:
    """Errors of the database as ours; `doing` says what was done: `writing to table 'flights'`.

    Raises:
        Unavailable: the same may succeed later.
        UserError: it will not.
    """
    try:
        yield
    except SQLAlchemyError as error:
        raise _explained(context, doing, error) from None  # the cause may show rows


def _explained(context: PluginContext, doing: str, error: SQLAlchemyError) -> OnyxError:
    what = f"{doing} failed: {_first_line(error)}"
    if _passes(error):
        return Unavailable(f"task {context.task!r}: {what}")
    return task_error(context, what)


def _parsed(context: PluginContext, option: str, url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        what = "is no URL of a database, as postgresql://user@host/database or sqlite:///path"
        raise option_error(context, option, what) from None  # the cause may show a password
    for value in parsed.query.values():
        for each in (value,) if isinstance(value, str) else value:
            if os.path.isabs(each):  # keys, certificates and files of passwords
                context.located(each)
    if parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        return _located(context, option, parsed)
    return parsed


def _located(context: PluginContext, option: str, url: URL) -> URL:
    """SQLite's file, counted from where relative paths do."""
    if not url.database or url.database == ":memory:":
        what = "leads to a database in memory, which nobody else sees; name a file: sqlite:///path"
        raise option_error(context, option, what)
    if url.database.startswith("file:"):  # SQLite's own form, with a query of its own
        context.located(url.database.removeprefix("file:").partition("?")[0])
        return url
    path = context.located(url.database)
    if not os.path.exists(path):  # SQLite would make an empty database
        what = f"leads to {path}, which does not exist; make the database and its table first"
        raise option_error(context, option, what)
    return url.set(database=path)


def _passes(error: SQLAlchemyError) -> bool:
    if not isinstance(error, DBAPIError):
        return isinstance(error, TimeoutError)
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_PASSING_SQLSTATES)
    code = getattr(error.orig, "sqlite_errorname", None)
    if code is not None:
        return str(code).startswith(_PASSING_SQLITE)
    refused = any(refusal in str(error.orig) for refusal in _REFUSALS)
    return isinstance(error, OperationalError | InterfaceError) and not refused


def _first_line(error: SQLAlchemyError) -> str:
    """What the database says, without the rows that PostgreSQL adds as a detail."""
    original = error.orig if isinstance(error, DBAPIError) else None
    diagnosis = getattr(getattr(original, "diag", None), "message_primary", None)
    return str(diagnosis or original or error).strip().splitlines()[0]
