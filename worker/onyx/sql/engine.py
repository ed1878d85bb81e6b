"""DuckDB as an engine for one batch at a time: it parses, and computes, and reaches nothing else.

Invariant: no statement reaches files, the network, other databases or variables of Python, and none
changes a setting. DuckDB is opened so and locked. `reading` besides lets only a select from
`segments` through, so each of the two holds alone.

A connection has one thread, the one that calls it: peers are as many as there are cores. A
statement that takes too long is ended by a thread of the process (`TimeLimit`).

DuckDB looks whether it is interrupted between two steps, so a statement ends somewhat later. One
thread serves all engines, because one for each batch would cost more than many a batch. While no
statement runs it waits for one.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from onyx.base.on_demand import ModuleOnDemand
from onyx.errors import UserError, UserFunctionError
from onyx.sql.grammar import MACROS

TIMEOUT_S = 60.0
"""How long a batch may take; a part of one that took longer gets its share."""
PART_TIMEOUT_S = 1.0
"""How long the smallest part may take."""
LOOK_INTERVAL_S = 0.2
pc = ModuleOnDemand("pyarrow.compute")
MEMORY_MAX = "1GB"
"""What a connection may take for what it keeps between operators; a row is not bounded by it."""
TABLE = "segments"
_SETTINGS: Mapping[str, Any] = {
    "threads": 1,
    "memory_limit": MEMORY_MAX,
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
DEPTH_MAX = 200
"""How deep expressions are nested; Python walks them by recursion."""
_LOCKED = (
    f"SET TimeZone = 'UTC'; SET max_expression_depth = {DEPTH_MAX}; "
    "SET error_on_division_by_zero = false; "
    "SET enable_external_access = false; SET lock_configuration = true"
)
"""Times of segments are in UTC."""
_PARSE = (
    "SELECT json_serialize_sql($1::VARCHAR, skip_default := true, "
    "skip_null := true, skip_empty := true)"
)
_WRITE = "SELECT json_deserialize_sql($1::JSON)"
_FUNCTIONS = (
    "SELECT function_name, list(DISTINCT function_type), list(DISTINCT stability) "
    "FROM duckdb_functions() WHERE internal GROUP BY ALL"
)
_OF_ALL_ROWS = ("BinderException", "CatalogException", "ParserException", "SyntaxException",
                "NotSupportedError", "NotImplementedException", "PermissionException",
                "InternalException", "FatalException")  # fmt: skip
"""Errors that say nothing about a row: the text does not fit the types of the batch."""
_LACKING = (
    "SQL needs DuckDB, which this Python does not have: pip install 'onyx-on-kubernetes[sql]'"
)


MONTHS = "__months__"
"""The first field of an interval that has months."""
_DURATION = (
    "{{'__months__': date_part('year', {0}) <> 0 OR date_part('month', {0}) <> 0, "
    "'us': CASE WHEN date_part('year', {0}) = 0 AND date_part('month', {0}) = 0 "
    "THEN epoch_us({0}) END}}"
)


class RowsFailed(Exception):
    """A row of the batch, or several, cannot be computed with; the message is the user's."""


class Engine:
    """A database in memory, with one table: the batch."""

    def __init__(self) -> None:
        """Raises UserError: DuckDB is not installed."""
        self._duckdb = _module()
        self._connection = self._duckdb.connect(":memory:", config=dict(_SETTINGS))
        self._connection.execute(_LOCKED)
        self._limit = TimeLimit()
        self._guards = False
        self._offered = _Offered()
        self._known: pa.Schema | None = None
        self._statements: dict[str, Any] = {}
        _OPEN.add(self)

    def close(self) -> None:
        """Let go of what DuckDB holds."""
        self._statements.clear()
        self._connection.close()
        self._connection = None

    def run(self, text: str, batch: pa.RecordBatch, timeout_s: float = TIMEOUT_S) -> pa.RecordBatch:
        """The result of a select from `segments`, in the order of its rows.

        Raises:
            RowsFailed: it fails because of what some rows hold.
            UserFunctionError: it does not fit the columns and their types.
        """
        self._offered.batch = batch
        self._limit.begin(timeout_s, self._connection.interrupt)
        try:
            if self._known != batch.schema:
                self._connection.register(TABLE, self._offered)
                self._known = batch.schema
            table = self._table(text)
        except self._duckdb.InterruptException:
            raise RowsFailed(
                f"sql took longer than {timeout_s:g} s for {batch.num_rows} rows, and was ended"
            ) from None
        except self._duckdb.Error as error:
            said = _said(error)
            if type(error).__name__ in _OF_ALL_ROWS:
                raise UserFunctionError(said) from None
            raise RowsFailed(said) from None
        finally:
            self._limit.end()
            self._offered.batch = None
        return table.combine_chunks().to_batches()[0] if len(table) else _empty(table.schema)

    def _table(self, text: str) -> pa.Table:
        """What a select gives. An interval without months is a duration: as it leaves DuckDB it
        would have nanoseconds, of which 64 bits hold 292 years. With months it is a struct."""
        relation = self._connection.sql(self._statement(text))
        types, names = relation.types, relation.columns
        intervals = [at for at, each in enumerate(types) if each.id == "interval"]
        if not intervals:
            return relation.to_arrow_table()
        columns = [f"c{at}" for at in range(len(names))]
        shown = [
            _DURATION.format(name) if at in intervals else name for at, name in enumerate(columns)
        ]
        # The text is a statement that was taken apart and written by DuckDB.
        outer = f"SELECT {', '.join(shown)} FROM ({text}) AS t({', '.join(columns)})"  # noqa: S608
        table = self._connection.sql(outer).to_arrow_table().rename_columns(names)
        for at in intervals:
            months, us = table.column(at).combine_chunks().flatten()
            if not pc.any(months).as_py():
                table = table.set_column(at, names[at], us.cast(pa.duration("us")))
        return table

    def parse(self, text: str) -> Mapping[str, Any]:
        """The tree of a text as DuckDB has it: `statements`, or `error_message` and `position`."""
        parsed: dict[str, Any] = json.loads(self._value(_PARSE, text))
        return parsed

    def write(self, tree: Mapping[str, Any]) -> str:
        """The text of a tree of statements."""
        return self._value(_WRITE, json.dumps(tree))

    def functions(self) -> dict[str, tuple[frozenset[str], frozenset[str | None]]]:
        """By name, the types of a function and how stable its results are."""
        rows = self._connection.execute(_FUNCTIONS).fetchall()
        return {name: (frozenset(types), frozenset(stable)) for name, types, stable in rows}

    def guard(self) -> None:
        """Have the macros of `grammar`. Few texts need them, and they take 30 ms."""
        if not self._guards:
            self._connection.execute(MACROS)
            self._guards = True

    def _value(self, text: str, argument: str) -> str:
        ((found,),) = self._connection.execute(text, [argument]).fetchall()
        return str(found)

    def _statement(self, text: str) -> Any:
        """A text that was parsed before is not parsed again."""
        if text not in self._statements:
            (self._statements[text],) = self._connection.extract_statements(text)
        return self._statements[text]


class _Offered:
    """The batch as DuckDB asks for it: registered once, and read again by each execution. A table
    of pyarrow would be read through a scanner of pyarrow.dataset, for twice the overhead."""

    def __init__(self) -> None:
        self.batch: pa.RecordBatch | None = None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        assert self.batch is not None, "asked while a statement runs"
        reader = pa.RecordBatchReader.from_batches(self.batch.schema, [self.batch])
        return reader.__arrow_c_stream__(requested_schema)


_OPEN: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """DuckDB complains on the standard error about what is open when the interpreter has gone."""
    for engine in [*_OPEN]:
        engine.close()


@cache
def shared() -> Engine:
    """An engine that parses texts; each task that runs one has its own.

    Raises:
        UserError: DuckDB is not installed.
    """
    return Engine()


def _module() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise UserError(_LACKING) from error
    return duckdb


def _said(error: Exception) -> str:
    """What DuckDB says, without the place in a text that the user did not write."""
    return str(error).partition("\n\nLINE ")[0].replace("\n", " ").strip()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)


# --- the time that a statement may take ---------------------------------------------------------


class TimeLimit:
    """The limit of one engine, for one statement at a time."""

    def __init__(self) -> None:
        self._interrupt: Callable[[], object] | None = None
        self._ends_s = 0.0

    def begin(self, timeout_s: float, interrupt: Callable[[], object]) -> None:
        """A statement begins, which `interrupt` ends from another thread."""
        _watch.start()
        with _watch.lock:
            self._interrupt = interrupt
            self._ends_s = time.monotonic() + timeout_s
            _watch.running.add(self)
            if not _watch.awake.is_set():
                _watch.awake.set()

    def end(self) -> None:
        """It has ended; what is interrupted from now on is not it."""
        with _watch.lock:
            self._interrupt = None
            _watch.running.discard(self)

    def look(self, now_s: float) -> None:
        """End the statement if its time is over. The lock is held."""
        if self._interrupt is not None and now_s >= self._ends_s:
            self._interrupt()


class _Watch:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: set[TimeLimit] = set()
        self.awake = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """A process that was forked has to start its own."""
        if self._thread is None or not self._thread.is_alive():
            with self.lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(
                        target=self._look, name="onyx-sql-time", daemon=True
                    )
                    self._thread.start()

    def _look(self) -> None:
        while True:
            self.awake.wait()
            time.sleep(LOOK_INTERVAL_S)
            with self.lock:
                for each in self.running:
                    each.look(time.monotonic())
                if not self.running:
                    self.awake.clear()


_watch = _Watch()
