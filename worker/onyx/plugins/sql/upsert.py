"""Upserts: each kind of database has its own statement for rows that replace others by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Engine, Insert, Table, inspect
from sqlalchemy.dialects import mysql, postgresql, sqlite

from onyx.plugins.options import option_error
from onyx.plugins.protocol import PluginContext

_BY_CONFLICT: Mapping[str, Callable[[Table], postgresql.Insert | sqlite.Insert]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}
_BY_DUPLICATE = ("mysql", "mariadb")


def check_keys(context: PluginContext, engine: Engine, table: Table, keys: Sequence[str]) -> None:
    """Check that these columns identify a row.

    Raises:
        UserError: the table lacks one, or a constraint that they are unique; or it is not known
            how to replace rows in this kind of database.
    """
    name = engine.dialect.name
    if name not in (*_BY_CONFLICT, *_BY_DUPLICATE):
        kinds = ", ".join((*_BY_CONFLICT, *_BY_DUPLICATE))
        raise option_error(context, "mode", f"cannot be upsert with {name}, only with {kinds}")
    for key in keys:
        if key not in table.columns:
            raise option_error(context, "keys", f"names {key!r}, which {table.fullname!r} lacks")
    if set(keys) not in _unique(engine, table):
        what = f"are no primary key and no unique constraint of table {table.fullname!r}"
        raise option_error(context, "keys", f"{what}; make them one: {', '.join(keys)}")


def upsert(engine: Engine, table: Table, keys: Sequence[str], names: Sequence[str]) -> Insert:
    """The statement for rows with these columns; what is not among them stays as it was."""
    others = [name for name in names if name not in keys]
    if engine.dialect.name in _BY_DUPLICATE:
        row = mysql.insert(table).inline()
        # A key set to itself is how this kind of database says that nothing is to be changed.
        return row.on_duplicate_key_update({each: row.inserted[each] for each in others or keys})
    inserted = _BY_CONFLICT[engine.dialect.name](table).inline()
    if not others:
        return inserted.on_conflict_do_nothing(index_elements=list(keys))
    replaced = {each: inserted.excluded[each] for each in others}
    return inserted.on_conflict_do_update(index_elements=list(keys), set_=replaced)


def _unique(engine: Engine, table: Table) -> list[set[str]]:
    """Sets of columns by which a row is the only one."""
    seen = inspect(engine)
    found = [seen.get_pk_constraint(table.name, table.schema)["constrained_columns"]]
    found += [
        each["column_names"] for each in seen.get_unique_constraints(table.name, table.schema)
    ]
    found += [
        [name for name in each["column_names"] if name is not None]
        for each in seen.get_indexes(table.name, table.schema)
        if each["unique"]
    ]
    return [set(names) for names in found]
