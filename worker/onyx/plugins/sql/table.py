"""The table that rows are written to, as it is in the database."""

from __future__ import annotations

from sqlalchemy import Engine, MetaData, Table, inspect
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.types import JSON

from onyx.model.report import nearest
from onyx.plugins.options import option_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.sql.engine import explained
from onyx.plugins.sql.target import Target
from onyx.plugins.sql.upsert import check_keys


def table_of(engine: Engine, context: PluginContext, target: Target) -> Table:
    """Read what columns there are.

    Raises:
        UserError: the table is not there, or cannot be written as wanted.
    """
    with explained(context, f"reading the columns of table {target.table!r}"):
        try:
            table = Table(target.table, MetaData(), schema=target.schema, autoload_with=engine)
        except NoSuchTableError as error:
            raise _no_table(engine, context, target) from error
        if target.keys:
            check_keys(context, engine, table, target.keys)
    for column in table.columns:
        if isinstance(column.type, JSON):
            column.type.none_as_null = True
    return table


def _no_table(engine: Engine, context: PluginContext, target: Target) -> Exception:
    names = inspect(engine).get_table_names(target.schema)
    hint = nearest(target.table, names) or "create it, or let this user see it"
    where = f" in schema {target.schema!r}" if target.schema else ""
    what = f"is {target.table!r}, a table that the database does not have{where} ({hint})"
    return option_error(context, "table", what)
