"""Partition columns, as Hive has them: folders `year=2024/month=1` in the path of a file are keys
of all of its segments.

Values are text, or what the option `types` or the schema of the task makes of it, in the way of the
fields of CSV: then all files have the same types, whichever are read. Rejected: types guessed of
the values, as other engines do, by which `01` is a number until a folder is called `0a`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import pyarrow as pa

from onyx.errors import UserError
from onyx.plugins.files.csv_cells import OPTION_TYPES, cell_of, converted_of

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose value is null."""


def partition_values(path: str) -> dict[str, str | None]:
    """The keys and values in the folders of a path, decoded; of a key that comes twice the last."""
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if key and equals:
            found[unquote(key)] = None if value == _NULL else unquote(value)
    return found


def partition_columns(
    path: str, types: Mapping[str, str], schema: pa.Schema | None
) -> dict[str, pa.Scalar]:
    """The keys in the folders of a path, each with its value; of a schema those that it names.

    Args:
        path: as far as it is the user's.
        types: the option.

    Raises:
        UserError: a value does not have its type; or a type of the schema has no form in text.
    """
    found: dict[str, pa.Scalar] = {}
    for key, text in partition_values(path).items():
        if schema is not None and key not in schema.names:
            continue
        named = OPTION_TYPES[types.get(key, "str")]
        kind = named if schema is None else schema.field(key).type
        cell_of(key, kind)  # refuses a type that has no form in text, for null too
        if text is None:
            found[key] = pa.scalar(None, kind)
            continue
        values, misfits = converted_of(pa.array([text], pa.string()), kind)
        if misfits:
            raise UserError(f"the folder {key}={text} of {path} holds no {kind}; change its type")
        found[key] = values[0]
    return found
