"""Output `sql`: rows of a table, in transactions that also say how far the writer has come."""

from __future__ import annotations

import os

from onyx.plugins.built_in_options import SqlOutputOptions
from onyx.plugins.options import option_error, read_options, task_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.roll_limits import RollLimits
from onyx.plugins.transactions import TransactionWriter


def sql_output(context: PluginContext) -> TransactionWriter:
    options = read_options(context, SqlOutputOptions)
    limits = RollLimits(options.roll_bytes, options.roll_segments, options.roll_seconds)
    try:
        from onyx.plugins.sql.engine import connect
        from onyx.plugins.sql.store import SqlStore, Target
    except ImportError as error:
        what = f"plugin 'sql' needs {error.name}: pip install 'onyx-on-kubernetes[sql]'"
        raise task_error(context, what) from error
    columns = options.columns
    target = Target(
        options.table,
        options.schema,
        {each: each for each in columns} if isinstance(columns, list) else columns,
        tuple(options.keys),
        options.positions_table,
    )
    engine = connect(context, "url" if options.url else "urlEnv", _url(context, options))
    return TransactionWriter(SqlStore(engine, context, target), context, limits)


def _url(context: PluginContext, options: SqlOutputOptions) -> str:
    if options.url is not None:
        return options.url
    assert options.url_env is not None, "checked with the options"
    url = os.environ.get(options.url_env)
    if not url:
        what = f"names variable {options.url_env!r}, which is not set on this worker"
        raise option_error(context, "urlEnv", what)
    return url
