"""Rules of tables, and of the tasks that look them up."""

from __future__ import annotations

from collections.abc import Iterator

from onyx.model import names
from onyx.model.keys.section import Draft
from onyx.model.plugins import TABLES, may_be_endless
from onyx.model.report import Report, at, listed, nearest, show
from onyx.model.rules.catalog import STAGES
from onyx.model.rules.looking import entries, good

TABLE = "table"
_OF_TABLES = (
    "name", "type", "plugin", "options", "key", "version_key", "refresh", "partitioned", "schema",
    "medium", "doc",
)  # fmt: skip


def check_table(draft: Draft, path: str, report: Report) -> None:
    """A table is read to its end, and has no keys of tasks that segments pass."""
    if good(draft, "type") != TABLE:
        return
    for field in draft:
        # What is not for tables at all was refused as such.
        if field not in _OF_TABLES and field not in _REFUSED:
            report.add(
                at(path, names.yaml_key(field)), "is not for a table, which no segment passes",
                f"a table has {listed([names.yaml_key(each) for each in _OF_TABLES])}",
            )  # fmt: skip
    plugin, options = good(draft, "plugin"), good(draft, "options") or {}
    if plugin in TABLES and may_be_endless(plugin, options):
        ends = TABLES[plugin].ends_with
        hint = f"give options.{ends}" if ends else "read it in a task of its own into files"
        report.add(at(path, "plugin"), f"{plugin} has no end, and a table is read to its end", hint)


_REFUSED = (
    "sql", "spark_stage", "spark_sql", "processor", "state", "state_ttl", "on_timer", "join",
    "tables", "group_by_key", "group_by_fn", "on_missing_key", "flux_policy", "dead_letter",
    "guarantee", "anchored", "retry_mode", "max_pending", "pending_timeout", "input_retry_timeout",
    "checkpoint_segments", "segments_per_second_max", "assign_watermark_fn", "watermark_key",
    "allowed_disorder", "idle_timeout", "left", "right", "how", "within", "range", "late_to",
)  # fmt: skip
"""Keys that say themselves for which types they are."""


def check_join(draft: Draft, path: str, report: Report) -> None:
    """A join stands where there is a function's place, and puts something somewhere."""
    join = good(draft, "join")
    if join is not None:
        _check_what(join, at(path, "join"), report)
    stage = next((field for field in STAGES if field in draft), None)
    if join is not None and stage is not None:
        what = f"is given together with {names.yaml_key(stage)}, which is all that the task does"
        report.add(at(path, "join"), what, "join in a task before this one")
    if good(draft, "tables") and "fn" not in draft and "processor" not in draft:
        report.add(at(path, "tables"), "is given, but the task has no fn", "add fn, or use join")


def _check_what(join: Draft, path: str, report: Report) -> None:
    """What segments get, and what those get that find nothing."""
    columns, default = good(join, "columns"), good(join, "default") or {}
    if columns == () and good(join, "under") is not None:
        report.add(at(path, "as"), "is given, but columns names none", "remove one")
    if columns == () and good(join, "how") != "inner":
        hint = "give how: inner, which drops segments without a row, or remove columns"
        report.add(at(path, "columns"), "names none, so the join does nothing", hint)
    if default and good(join, "how") == "inner":
        hint = "remove it, or give how: left"
        report.add(at(path, "default"), "is for segments that inner drops", hint)
    for name in default if columns is not None else ():
        if name not in columns:
            hint = nearest(name, columns) or "add it there, or remove it here"
            report.add(at(at(path, "default"), name), "is not one of columns", hint)


def check_tables(spec: Draft, path: str, report: Report) -> None:
    """Joins name tables that are there and fit, and each table is looked up."""
    found = {
        good(draft, "name"): draft
        for draft, _ in entries(spec, "catalog", path, "catalog")
        if good(draft, "type") == TABLE
    }
    used: set[str] = set()
    for draft, where in entries(spec, "catalog", path, "catalog"):
        join = good(draft, "join")
        for table, named, is_join in _named(draft, where):
            used.add(table)
            if table not in found:
                hint = nearest(table, sorted(filter(None, found))) or "add it to the catalog"
                report.add(named, f"{show(table)} is no task of type table", hint)
            elif is_join:
                _check_fit(join, found[table], at(where, "join"), report)
            if table in found and good(found[table], "partitioned"):
                _check_groups(draft, join if is_join else None, named, report)
    for draft, where in entries(spec, "catalog", path, "catalog"):
        if good(draft, "type") != TABLE:
            continue
        if good(draft, "name") not in used:
            hint = "name it in `join` or `tables` of a task, or remove it"
            report.add(at(where, "name"), "is a table that no task looks up", hint)


def _named(draft: Draft, path: str) -> Iterator[tuple[str, str, bool]]:
    """Tables that a task names, where, and whether it joins them."""
    join = good(draft, "join")
    if join is not None and good(join, "table") is not None:
        yield good(join, "table"), at(at(path, "join"), "table"), True
    for index, table in enumerate(good(draft, "tables") or ()):
        yield table, at(at(path, "tables"), index), False


def _check_groups(draft: Draft, join: Draft | None, path: str, report: Report) -> None:
    """What looks up a partitioned table gets the segments whose rows are there."""
    if join is None:
        what = "is a partitioned table, of which each peer has other rows"
        report.add(path, what, "look it up with join, or remove partitioned from the table")
        return
    looked = good(join, "key")
    if looked is not None and set(_names(good(draft, "group_by_key"))) != set(_names(looked)):
        what = f"is a partitioned table, whose rows are where groups by {show(looked)} are"
        hint = f"give the task groupByKey: {show(looked)}, or remove partitioned from the table"
        report.add(path, what, hint)


def _check_fit(join: Draft, table: Draft, path: str, report: Report) -> None:
    mine, its = good(join, "key"), good(table, "key")
    if mine is not None and its is not None and many_parts(mine) != many_parts(its):
        report.add(
            at(path, "key"),
            f"has {many_parts(mine)} parts, and the key of the table {many_parts(its)}",
            "give as many, in the same order",
        )
    versions, time = good(table, "version_key"), good(join, "at")
    if versions is not None and "at" not in join:
        what = "is missing: the table has a versionKey, so its rows are valid from a time on"
        report.add(at(path, "at"), what, "give the key of a segment that holds its time")
    if time is not None and "version_key" not in table:
        what = "is given, but the table has no versionKey"
        report.add(at(path, "at"), what, "add versionKey to the table, or remove it")


def _names(key: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key or ()


def many_parts(key: str | tuple[str, ...]) -> int:
    """How many parts a key has, as a manifest gives it."""
    return len(_names(key))
