"""Databases for tests: a file of SQLite, and a database of a real PostgreSQL."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.pool import NullPool
from tests.support.jobs.plugin_context import plugin_context

from onyx.plugins.protocol import PluginContext
from onyx.plugins.sql.engine import connect
from onyx.plugins.sql.output import SqlStore, Target


def named(url: str) -> dict[str, str]:
    """The option by which an output is told of a database: one with a password by a variable, which
    workers that are started later have too."""
    if make_url(url).password is None:
        return {"url": url}
    variable = f"TEST_DATABASE_{zlib.crc32(url.encode()):08X}"
    os.environ[variable] = url
    return {"urlEnv": variable}


class Database:
    """One database, seen with other eyes than those of the plugin."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = make_url(url).get_backend_name()
        self.engine: Engine = create_engine(url, poolclass=NullPool)

    def run(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    def numbers(self) -> list[int]:
        """Of table `numbers`, sorted."""
        return [row[0] for row in self.rows("SELECT n FROM numbers ORDER BY n")]

    def writers(self) -> list[str]:
        return [row[0] for row in self.rows("SELECT writer FROM onyx_positions ORDER BY writer")]


def sql_store(
    database: Database,
    table: str = "numbers",
    *,
    columns: Mapping[str, str] | None = None,
    keys: Sequence[str] = (),
    context: PluginContext | None = None,
) -> SqlStore:
    context = context or plugin_context({})
    target = Target(table, None, columns, tuple(keys), "onyx_positions")
    return SqlStore(connect(context, "url", database.url), context, target)
