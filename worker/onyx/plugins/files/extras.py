"""Fields added to every segment of a file: where it comes from, and what its folders say.

Folders `year=2024/month=1` in the path of a file are keys of all of its segments, the partition
columns of Hive. Values are text, or what the option `types` or the schema of the task makes of it,
in the way of the fields of CSV: then all files have the same types, whichever are read. Rejected:
types guessed of the values, as other engines do, by which `01` is a number until a folder is called
`0a`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.batch import Indices, Read, Segments, format_of, mixed, pieces_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.plugins.files.csv_format import OPTION_TYPES, cell_of, converted_of
from onyx.plugins.segment_runs import with_columns

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose value is null."""


class Extras:
    """The number of the record, the path of the file, and keys that all of its segments have."""

    def __init__(
        self,
        file: str,
        number_key: str | None = None,
        file_key: str | None = None,
        same: Mapping[str, pa.Scalar] | None = None,
    ) -> None:
        """A key that is None is not added. `same`: of all segments; they stand in the place of what
        the file itself has under these keys."""
        self._number_key = number_key
        self._same = dict(same or {})
        if file_key is not None:
            self._same[file_key] = pa.scalar(file)
        self._values = {key: value.as_py() for key, value in self._same.items()}
        self._none = number_key is None and not self._same

    def added_to(self, read: Read, first: int) -> Read:
        """The segments with these; dicts get them in place, and columns beside them, or in the
        index of those that have their names.

        Args:
            first: the position of the first segment.
        """
        if self._none:
            return read
        return mixed(
            [(indices, self._added(each, indices + first)) for indices, each in pieces_of(read)]
        )

    def added(self, segments: Segments, first: int) -> Segments:
        """The segments of one format with these."""
        if self._none:
            return segments
        return self._added(segments, np.arange(first, first + len(segments)))

    def _added(self, segments: Segments, numbers: Indices) -> Segments:
        add = format_of(segments).choose(self._in_each, self._beside)
        return add(segments, numbers)

    def _in_each(self, segments: list[Segment], numbers: Indices) -> Segments:
        if self._number_key is not None:
            for number, segment in zip(numbers.tolist(), segments, strict=True):
                segment[self._number_key] = number
        for key, value in self._values.items():
            for segment in segments:
                segment[key] = value
        return segments

    def _beside(self, columns: Columns, numbers: Indices) -> Segments:
        count, found = len(columns), dict[str, pa.Array]()
        if self._number_key is not None:
            found[self._number_key] = pa.array(numbers, pa.int64())
        for key, value in self._same.items():
            found[key] = pa.repeat(value, count)
        return with_columns(columns, found)


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
