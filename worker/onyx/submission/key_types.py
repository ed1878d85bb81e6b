"""Keys that are text on one side and numbers on the other, of which none ever equals another.

A join that finds nothing looks like data without partners: CSV gives text unless `types` says
otherwise, and JSON has numbers. So before a run is looked at the first records of files, at footers
of Parquet, at options and schemas, as far as a key is what an input or a table has read. Nothing is
known behind a function. What a file begins with need not go on so, hence these are warnings.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from onyx.base.on_demand import ModuleOnDemand
from onyx.base.structs import UNREADABLE
from onyx.errors import OnyxError, Problem
from onyx.model.column_types import parse_type
from onyx.model.job import CatalogEntry, Job
from onyx.model.report import at
from onyx.model.workflow import parents
from onyx.plugins.files.options import COMPRESSED, FilesInputOptions, format_by_name
from onyx.plugins.options import check_options, own_options
from onyx.settings import Settings
from onyx.storage.files import InputFiles
from onyx.submission.here import FILES, Places

HEAD_BYTES_MAX = 262_144
LINES_MAX = 100
"""What is read of a file."""
Kind = Literal["text", "a number"]

_OF_CSV: Mapping[str, Kind] = {"str": "text", "int": "a number", "float": "a number"}

pq = ModuleOnDemand("pyarrow.parquet")
kinds = ModuleOnDemand("pyarrow.types")


class _KeySide(msgspec.Struct, frozen=True):
    """A key of the segments of a task."""

    task: str
    key: str
    kind: Kind
    source: CatalogEntry
    """What has read it."""


def unlike_keys(job: Job, settings: Settings, runs: bool = True) -> list[Problem]:
    """Keys of joins, of tables and of groups that are text here and a number there.

    Args:
        job: that is to run.
        settings: of its workers.
        runs: whether it is going to run here; else object stores are not asked.
    """
    return [*_found(_KeySources(job, settings, runs))]


def _found(sources: _KeySources) -> Iterator[Problem]:
    job = sources.job
    for index, entry in enumerate(job.catalog):
        path = at("spec.catalog", index)
        above = parents(job.workflow).get(entry.name, ())
        if entry.left is not None and entry.right is not None:
            for one, other in zip(entry.left.keys, entry.right.keys, strict=True):
                sides = [(entry.left.task, one), (entry.right.task, other)]
                yield from _unlike(at(at(path, "right"), "key"), sources.of(sides))
        if entry.join is not None and entry.join.table is not None:
            keys = _many(job.entry(entry.join.table).key)
            for one, other in zip(entry.join.keys, keys, strict=True):
                sides = [*((task, one) for task in above), (entry.join.table, other)]
                yield from _unlike(at(at(path, "join"), "key"), sources.of(sides))
        for key in _many(entry.group_by_key):
            sides = [(task, key) for task in above]
            yield from _unlike(at(path, "groupByKey"), sources.of(sides))


def _unlike(path: str, sides: Sequence[_KeySide]) -> Iterator[Problem]:
    text = next((each for each in sides if each.kind == "text"), None)
    number = next((each for each in sides if each.kind == "a number"), None)
    if text is None or number is None:
        return
    message = (
        f"is text in segments of {text.task} ({text.key}), and a number in those of {number.task} "
        f"({number.key}): no two are ever equal"
    )
    of_csv = next((each for each in (text, number) if _is_csv(each.source)), None)
    hint = f"convert {text.key} in a function before"
    if of_csv is text:
        hint = f"add types: {{{text.key}: int}} to the options of {text.source.name}"
    elif of_csv is number:
        hint = f"take {number.key} out of types of {number.source.name}"
    yield Problem(path, message, hint)


def _many(key: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if key is None else (key,) if isinstance(key, str) else key


def _is_csv(entry: CatalogEntry) -> bool:
    options = _options(entry)
    return options is not None and entry.schema is None and _format(options) == "csv"


def _options(entry: CatalogEntry) -> FilesInputOptions | None:
    if entry.plugin != FILES or entry.type == "output":
        return None
    return check_options(own_options(entry), FilesInputOptions)[0]


def _format(options: FilesInputOptions) -> str | None:
    first = options.path if isinstance(options.path, str) else next(iter(options.path), "")
    return options.format or format_by_name(first)


class _KeySources:
    """What is known of the values of keys where they are read."""

    def __init__(self, job: Job, settings: Settings, runs: bool) -> None:
        self.job = job
        self._places = Places(job, settings, runs=runs)
        self._parents = parents(job.workflow)
        self._files = InputFiles()

    def of(self, sides: Sequence[tuple[str, str]]) -> list[_KeySide]:
        """These keys of these tasks, as far as their kinds are known."""
        found = list[_KeySide]()
        for task, key in sides:
            for source in self._origins(self.job.entry(task)):
                kind = self._kind(source, key)
                if kind is not None:
                    found.append(_KeySide(task, key, kind, source))
        return found

    def _origins(self, entry: CatalogEntry) -> Iterator[CatalogEntry]:
        """The inputs whose segments the task sends on as they are."""
        if entry.schema is not None or entry.type in ("input", "table"):
            yield entry
        elif entry.type == "function" and entry.maker is None and entry.stage is None:
            for each in self._parents.get(entry.name, ()):
                yield from self._origins(self.job.entry(each))

    def _kind(self, entry: CatalogEntry, key: str) -> Kind | None:
        if entry.schema is not None:
            return _of_type(entry.schema.get(key))
        if entry.plugin == "sequence":
            return _of_rows(entry.options.get("segments"), key)
        options = _options(entry)
        if options is None:
            return None
        try:
            path = min(self._places.read_by(entry), default="")
            with self._files.open(path, ahead=False) as file:
                form = None if path.endswith(COMPRESSED) else _format(options)
                if form == "parquet":
                    schema = pq.read_schema(file)
                    return _of_column(schema.field(key).type) if key in schema.names else None
                head = file.read(HEAD_BYTES_MAX)
                lines = head.splitlines()[: LINES_MAX if len(head) < HEAD_BYTES_MAX else -1]
                if form == "csv":
                    return _of_csv(options, path, lines, key)
                rows = (each for each in lines[:LINES_MAX] if form == "jsonl" and each.strip())
                return _of_rows([msgspec.json.decode(each) for each in rows], key)
        except (OnyxError, OSError, csv.Error, *UNREADABLE):
            return None  # that there is none, or a bad one, is said by who reads it


def _of_csv(options: FilesInputOptions, path: str, lines: Sequence[bytes], key: str) -> Kind | None:
    """The kind of a column, if there is one of this name."""
    first = [each.decode("utf-8-sig") for each in lines[:1]]
    names = options.columns or next(csv.reader(first, delimiter=options.delimiter_of(path)), [])
    return _OF_CSV.get(options.types.get(key, "str")) if key in names else None


def _of_rows(rows: Any, key: str) -> Kind | None:
    """The kind of the values that rows have there, if all have the same."""
    each = rows if isinstance(rows, list) else []
    values = [row[key] for row in each if isinstance(row, dict) and row.get(key) is not None]
    if values and all(isinstance(value, str) for value in values):
        return "text"
    if values and all(type(value) in (int, float) for value in values):
        return "a number"
    return None


def _of_type(text: str | None) -> Kind | None:
    name = "" if text is None else parse_type(text).name
    if name.startswith(("int", "uint", "float", "decimal")):
        return "a number"
    return "text" if name == "string" else None


def _of_column(kind: Any) -> Kind | None:
    if kinds.is_dictionary(kind):
        return _of_column(kind.value_type)
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return "a number"
    return "text" if kinds.is_string(kind) or kinds.is_large_string(kind) else None
