"""Values in columns or rows as dicts, one a row: in C, where the names of the columns allow it.

`dict(zip(names, row))` for each row takes four times as long as an object of a `msgspec.Struct`
that has the names as fields, and the dict of its fields. Rejected: source text with the names in
it, given to `eval`, which saves a tenth more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import starmap
from keyword import iskeyword
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec


def dict_rows(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """A dict for each row, with the names as keys, in their order.

    Args:
        names: at least one.
        columns: the values of each name, all of one length.
    """
    make = _row_type(tuple(names))
    if make is None:
        return [dict(zip(names, row)) for row in zip(*columns, strict=True)]  # noqa: B905
    return list(map(msgspec.structs.asdict, map(make, *columns)))


def dicts_of(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """A dict for each row of values, with the names as keys, in their order.

    Raises:
        ValueError, TypeError: a row has not as many values as there are names.
    """
    make = _row_type(tuple(names))
    if make is None:
        return [dict(zip(names, row, strict=True)) for row in rows]
    return list(map(msgspec.structs.asdict, starmap(make, rows)))


class Alike(NamedTuple):
    """Dicts that have the same keys."""

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """The values of each, by these names."""


def alike(dicts: Sequence[dict[str, Any]]) -> Alike | None:
    """The values of dicts that have the same keys, at least two; None: others."""
    names = tuple(dicts[0]) if dicts else ()
    if len(names) < 2 or set(map(len, dicts)) != {len(names)}:
        return None
    try:
        return Alike(names, list(map(itemgetter(*names), dicts)))
    except KeyError:
        return None


@lru_cache(maxsize=256)
def _row_type(names: tuple[str, ...]) -> type[msgspec.Struct] | None:
    """A type with these fields; None if there is none, or its fields would be more than fields."""
    if len(set(names)) < len(names):
        return None
    if any(not name.isidentifier() or iskeyword(name) or name[0] == "_" for name in names):
        return None
    return msgspec.defstruct("Row", names, gc=False)
