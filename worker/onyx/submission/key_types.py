"""Keys by which nothing is found: those that no segment has, and those that are text on one side
and numbers on the other, of which none ever equals another.

A join that finds nothing looks like data without partners: a key is misspelled; or CSV gives text
unless `types` says otherwise, and JSON has numbers. So before a run is looked at the first records
of files, at footers of Parquet, at options and schemas, as far as a key is what an input or a table
has read. Nothing is known behind a function. What a file begins with need not go on so, hence these
are warnings.
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
from onyx.model.report import at, listed, nearest, show
from onyx.model.workflow import parents
from onyx.plugins.files.options import COMPRESSED, FilesInputOptions, format_by_name
from onyx.plugins.options import check_options, own_options
from onyx.settings import Settings
from onyx.storage.files import InputFiles
from onyx.submission.here import FILES, Places

HEAD_BYTES_MAX = 262_144
LINES_MAX = 100
"""What is read of a file."""
NAMES_SHOWN_MAX = 8
Kind = Literal["text", "a number"]
Names = Mapping[str, Kind | None]
"""The keys of segments, and of what kind their values are, if that is known."""

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


def keys_in_vain(job: Job, settings: Settings, runs: bool = True) -> list[Problem]:
    """Keys of joins, of tables, of groups and of windows that segments do not have, or that are
    text here and a number there.

    Args:
        job: that is to run.
        settings: of its workers.
        runs: whether it is going to run here; else object stores are not asked.
    """
    sources = _KeySources(job, settings, runs)
    return [*_absent(sources), *_found(sources)]


def _absent(sources: _KeySources) -> Iterator[Problem]:
    for path, task, keys, names in _asked_for(sources):
        for key in keys:
            if names is not None and key not in names:
                first = [show(each)[1:-1] for each in list(names)[:NAMES_SHOWN_MAX]]
                what = f"is {show(key)}, which the first segments of {task} do not have"
                hint = nearest(key, names) or f"they have {listed(first)}"
                yield Problem(path, what, hint)


def _asked_for(
    sources: _KeySources,
) -> Iterator[tuple[str, str, tuple[str, ...], Names | None]]:
    """Where the job names keys, whose segments are to have them, and what these have."""
    job = sources.job
    for index, entry in enumerate(job.catalog):
        path = at("spec.catalog", index)
        for name, side in zip(("left", "right"), entry.sides, strict=False):
            yield at(at(path, name), "key"), side.task, side.keys, sources.names(side.task)
        if entry.type == "table":
            yield at(path, "key"), entry.name, _many(entry.key), sources.names(entry.name)
        for task in sources.parents.get(entry.name, ()):
            names = None if entry.name in sources.gets_others else sources.names(task)
            if entry.join is not None:
                yield at(at(path, "join"), "key"), task, entry.join.keys, names
            yield at(path, "groupByKey"), task, _many(entry.group_by_key), names
    for index, window in enumerate(job.windows):
        path, names = at("spec.windows", index), sources.within(window.task)
        yield at(path, "windowKey"), window.task, _many(window.window_key), names
        yield at(path, "sessionKey"), window.task, _many(window.session_key), names


def _found(sources: _KeySources) -> Iterator[Problem]:
    job = sources.job
    for index, entry in enumerate(job.catalog):
        path = at("spec.catalog", index)
        above = sources.parents.get(entry.name, ())
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
        self.parents = parents(job.workflow)
        self._files = InputFiles()
        self.gets_others = _not_as_sent(job)
        """Tasks that get something else than what their parents have made."""
        self._windowed = {window.task for window in job.windows}
        self._names: dict[str, Names | None] = {}
        self._heads: dict[str, Names | None] = {}

    def of(self, sides: Sequence[tuple[str, str]]) -> list[_KeySide]:
        """These keys of these tasks, as far as their kinds are known."""
        found = list[_KeySide]()
        for task, key in sides:
            for source in self._origins(self.job.entry(task)):
                kind = (self.head(source) or {}).get(key)
                if kind is not None:
                    found.append(_KeySide(task, key, kind, source))
        return found

    def _origins(self, entry: CatalogEntry) -> Iterator[CatalogEntry]:
        """The inputs whose segments the task sends on as they are."""
        if entry.schema is not None or entry.type in ("input", "table"):
            yield entry
        elif entry.type == "function" and entry.maker is None and entry.stage is None:
            for each in self.parents.get(entry.name, ()):
                yield from self._origins(self.job.entry(each))

    def names(self, task: str) -> Names | None:
        """The keys that segments of a task have; None: that is not known."""
        if task not in self._names:
            entry = self.job.entry(task)
            passes = entry.type == "function" and task not in self._windowed
            reads = entry.type in ("input", "table") and not self.job.lifecycles
            its = self.head(entry) if reads else None
            self._names[task] = self.within(task) if passes else its
        return self._names[task]

    def within(self, task: str) -> Names | None:
        """The keys of segments of a task when its windows get them."""
        entry = self.job.entry(task)
        if entry.maker is not None or entry.stage is not None or task in self.gets_others:
            return None
        found = dict[str, Kind | None]()
        above = (self.names(each) for each in self.parents.get(task, ()))
        before = [self.head(entry)] if entry.schema is not None else above
        for names in (*before, self._joined(entry)):
            if names is None:
                return None
            found |= names
        return found

    def _joined(self, entry: CatalogEntry) -> Names | None:
        """What segments get by the join of a task."""
        join = entry.join
        if join is None:
            return {}
        if join.under is not None or join.columns is not None or join.table is None:
            return dict.fromkeys((join.under,) if join.under is not None else join.columns or ())
        return self.names(join.table)

    def head(self, entry: CatalogEntry) -> Names | None:
        """The keys of what an input or a table reads; None: that is not known."""
        if entry.name not in self._heads:
            self._heads[entry.name] = self._head(entry) or None
        return self._heads[entry.name]

    def _head(self, entry: CatalogEntry) -> Names | None:
        if entry.schema is not None:
            return {key: _of_type(each) for key, each in entry.schema.items()}
        if entry.plugin == "sequence":
            return _of_rows(entry.options.get("segments"))
        options = _options(entry)
        return None if options is None else self._read(entry, options)

    def _read(self, entry: CatalogEntry, options: FilesInputOptions) -> Names | None:
        try:
            path = min(self._places.read_by(entry), default="")
            with self._files.open(path, ahead=False) as file:
                form = None if path.endswith(COMPRESSED) else _format(options)
                head = b"" if form == "parquet" else file.read(HEAD_BYTES_MAX)
                lines = head.splitlines()[: LINES_MAX if len(head) < HEAD_BYTES_MAX else -1]
                if form == "parquet":
                    names: Names = {
                        each.name: _of_column(each.type) for each in pq.read_schema(file)
                    }
                elif form == "csv":
                    names = _of_csv(options, path, lines)
                else:
                    rows = (each for each in lines[:LINES_MAX] if form == "jsonl" and each.strip())
                    names = _of_rows([msgspec.json.decode(each) for each in rows])
        except (OnyxError, OSError, csv.Error, *UNREADABLE):
            return None  # that there is none, or a bad one, is said by who reads it
        return names and {**dict.fromkeys(_given(options, path)), **names}


def _not_as_sent(job: Job) -> set[str]:
    """Tasks that get letters, what came late, or what a flow condition has made of errors."""
    found = {entry.dead_letter for entry in job.catalog if entry.dead_letter is not None}
    found = found.union(*(job.late_children(entry.name) for entry in job.catalog))
    for each in job.flow_conditions:
        makes = each.to if each.thrown_exception or each.post_transform is not None else ()
        for to in (makes, each.predicate_errors_to or ()):
            found |= {to} if isinstance(to, str) else {*to}
    return found


def _given(options: FilesInputOptions, path: str) -> Iterator[str]:
    """Keys that segments get beside what a file has."""
    yield from (each for each in (options.record_number, options.file_name) if each is not None)
    yield from (each.partition("=")[0] for each in path.split("/")[:-1] if "=" in each)
    if options.on_bad_record == "segment":
        yield from ("_error", "_raw")


def _of_csv(options: FilesInputOptions, path: str, lines: Sequence[bytes]) -> Names:
    first = [each.decode("utf-8-sig") for each in lines[:1]]
    names = options.columns or next(csv.reader(first, delimiter=options.delimiter_of(path)), [])
    return {name: _OF_CSV.get(options.types.get(name, "str")) for name in names}


def _of_rows(rows: Any) -> Names:
    """The kinds of the values that rows have, of those that are the same in all."""
    each = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {
        key: _of_values([row.get(key) for row in each])
        for key in dict.fromkeys(key for row in each for key in row)
    }


def _of_values(values: Sequence[Any]) -> Kind | None:
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, str) for value in there):
        return "text"
    if there and all(type(value) in (int, float) for value in there):
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
