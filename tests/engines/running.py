"""Runs a case on the bench and in DuckDB, and compares the rows."""

from __future__ import annotations

import copy
import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
from tests.engines.cases import Case
from tests.support.jobs.bench import Bench

from onyx.settings import Settings, StateSettings

HALVES = 2
SHOWN_MAX = 5


def difference(case: Case, folder: Path) -> str:
    """What the job writes and the query does not have, and the other way round; empty if they
    agree."""
    found = Counter(_comparable(row, case.columns) for row in _by_job(case, folder))
    wanted = Counter(_comparable(row, case.columns) for row in _by_query(case))
    if found == wanted:
        return ""
    beyond = sorted(map(repr, (found - wanted).elements()))[:SHOWN_MAX]
    missing = sorted(map(repr, (wanted - found).elements()))[:SHOWN_MAX]
    return f"{case.name}\nonly the job has {beyond}\nonly the query has {missing}\n{case.query}"


def _by_job(case: Case, folder: Path) -> list[Any]:
    spec, out = copy.deepcopy(dict(case.spec)), folder / "out"
    for entry in spec["catalog"]:
        if "options" in entry:
            entry["options"]["path"] = str(_file(case, entry["options"]["path"], folder))
        elif entry["type"] == "output" and case.written:
            entry["plugin"] = "files"
            entry["options"] = {"path": str(out), "format": case.written}
    state = StateSettings(memory_extents_max=2 if case.spilled else 0, scratch_dir=str(folder))
    functions = {"m:same": lambda segment: segment}
    bench = Bench(spec, functions, case.peers, settings=Settings(state=state))
    try:
        bench.settle()
        assert not bench.exceptions, bench.exceptions
        assert bench.completed, "the job does not end"
    finally:
        for task in bench.tasks.values():
            bench.stop(task, "job-completed")  # which closes its files
    return _parts(case, out) if case.written else bench.written("write")


def _parts(case: Case, out: Path) -> list[dict[str, Any]]:
    """What DuckDB reads in published parts; JSON has the types of the table."""
    paths = [str(path) for path in out.glob(f"part-*.{case.written}")]
    if not paths:
        return []
    with _duckdb(case) as connection:
        if case.written == "parquet":
            return _rows(connection.read_parquet(paths, union_by_name=True))
        types = dict(connection.sql("select column_name, column_type from (describe t)").fetchall())
        text = f"select * from read_json({paths}, columns = {types}, format = 'newline_delimited')"
        return _rows(connection.sql(text))


@contextmanager
def _duckdb(case: Case) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name, table in case.tables.items():
            connection.register(name, table)
        yield connection


def _file(case: Case, name: str, folder: Path) -> Path:
    """The file of a table, as DuckDB writes it; or of one half of it: `t0` and `t1` of `t`."""
    path, rows = folder / f"{name}.{case.read}", f"from {name}"
    if name not in case.tables:
        rows = f"from {name[:-1]} where n % {HALVES} = {name[-1]}"
    form = {"jsonl": "json"}.get(case.read, case.read)
    with _duckdb(case) as connection:
        connection.execute(f"copy ({rows}) to '{path}' (format {form})")
    return path


def _by_query(case: Case) -> list[dict[str, Any]]:
    with _duckdb(case) as connection:
        return _rows(connection.sql(case.query))


def _rows(relation: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()
    return found


def _comparable(row: Mapping[str, Any], columns: Iterable[str]) -> tuple[Any, ...]:
    return tuple(_plain(row.get(name)) for name in columns)


def _plain(value: Any) -> Any:
    """Equal where values are: numbers of all types, moments of all zones; `True` is no 1."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float | Decimal):
        return Decimal(value).normalize() + 0
    if isinstance(value, datetime.datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return zoned.astimezone(datetime.UTC)
    return value
