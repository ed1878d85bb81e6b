"""Output `sql`: rows of a table, in transactions that also hold the position of the writer."""

from __future__ import annotations

from onyx.plugins.options import variable_of
from onyx.plugins.protocol import PluginContext
from onyx.plugins.roll_limits import roll_limits
from onyx.plugins.sql.engine import connect
from onyx.plugins.sql.options import SqlOptions
from onyx.plugins.sql.store import SqlStore
from onyx.plugins.sql.target import Target
from onyx.plugins.transactions import ColumnsTransactionWriter


class SqlOutput(ColumnsTransactionWriter):
    """A `ColumnsTransactionWriter` over a `SqlStore`."""

    def __init__(self, context: PluginContext, options: SqlOptions) -> None:
        columns = options.columns
        target = Target(
            options.table,
            options.schema,
            {each: each for each in columns} if isinstance(columns, list) else columns,
            tuple(options.keys),
            options.positions_table,
        )
        engine = connect(context, "url" if options.url else "urlEnv", _url(context, options))
        super().__init__(SqlStore(engine, context, target), context, roll_limits(options))


def _url(context: PluginContext, options: SqlOptions) -> str:
    if options.url is not None:
        return options.url
    assert options.url_env is not None, "checked with the options"
    return variable_of(context, "urlEnv", options.url_env)
