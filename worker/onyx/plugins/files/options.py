"""Options of the `files` plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Literal

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import Options, PartOptions, wrong_location
from onyx.plugins.starting import Form, StartFrom, wrong_start

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""How names of compressed files end."""
_BY_SUFFIX = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet",
    ".txt": "text", ".log": "text", ".tsv": "csv",
}  # fmt: skip
COMPRESSIONS = {"jsonl": ("none", "gzip"), "parquet": ("snappy", "none", "gzip", "zstd")}
"""The compressions of parts, by format; the first is the default."""
RECORD_BYTES_MAX = 1_048_576
"""Half of what a segment may take: names of columns and the form of numbers come to it."""
_Type = Literal["int", "float", "str", "bool"]
_REFUSED: Mapping[Form, str] = {
    "end": "the files are listed once, so nothing comes behind their ends",
    "recordsAgo": "a file has to be read before it is known how many records it has",
}


class FilesInputOptions(Options, frozen=True):
    """Options of the input."""

    path: str | list[str]
    """Files or objects to read, or patterns (`data/*.csv`, `s3://bucket/logs/**/*.jsonl.gz`)."""
    format: Literal["jsonl", "text", "csv", "parquet"] | None = None
    """Without it, by the end of the name; compression is always by the end of the name."""
    header: bool = True
    """csv: the first record names the columns."""
    columns: list[str] | None = None
    """csv: names of the columns of files without a header."""
    delimiter: str | None = None
    """csv: one character; without it a comma, or a tab for `.tsv`."""
    types: dict[str, _Type] = msgspec.field(default_factory=dict)
    """csv, and keys of folders: columns to convert from text. An empty field becomes null, except
    for `str`."""
    hive_partitioning: bool = True
    """Folders of the path that are called `key=value` give all segments of their files this key."""
    start_from: StartFrom = "beginning"
    """Where a new job begins: `beginning`, `{position: 500}` (record 500 of each file),
    `{positions: {a.csv: 500}}`, or with the files modified since `{timeAgo: 2 hours}` or a time."""
    on_bad_record: Literal["fail", "deadLetter", "segment"] = "fail"
    """`fail` the job, write a `deadLetter`, or give a `segment` `{"_error": ..., "_raw": ...}` in
    the record's place."""
    record_number: str | None = None
    """Key under which each segment gets the number of its record in the file, from 0."""
    file_name: str | None = None
    """Key under which each segment gets the path of its file."""
    record_bytes_max: Annotated[int, msgspec.Meta(ge=16, le=RECORD_BYTES_MAX)] = RECORD_BYTES_MAX
    """A longer record is a bad one: a segment of more than 2 MiB cannot travel."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        for path in [self.path] if isinstance(self.path, str) else self.path:
            yield from wrong_location("path", path)
        yield from wrong_start(self.start_from, _REFUSED)
        delimiter = self.delimiter
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            yield Problem("delimiter", "must be one character, not a quote or newline")
        if self.header and self.columns is not None:
            yield Problem("columns", "is for files without a header", "add header: false")
        if not self.header and not self.columns:
            yield Problem("columns", "is missing: header: false needs names")

    def delimiter_of(self, path: str) -> str:
        """What is between the fields of a file of CSV."""
        return self.delimiter or ("\t" if suffix_of(path) == ".tsv" else ",")


class FilesOutputOptions(PartOptions, frozen=True):
    """Options of the output."""

    format: Literal["jsonl", "parquet"] = "jsonl"
    compression: str | None = None
    """jsonl: `none` or `gzip`; parquet: `snappy`, `none`, `gzip` or `zstd`."""
    nan: Literal["error", "null", "text"] = "error"
    """jsonl: what to write for NaN and infinities, which JSON lacks; `text` is `"NaN"`,
    `"Infinity"`."""
    existing: Literal["append", "refuse"] | None = None
    """Whether a job that begins may `append` to a folder with parts of other jobs, or has to
    `refuse`. Without it `onyx run` refuses, and a job on a cluster appends. A job that upgrades one
    goes on in its folder."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        possible = COMPRESSIONS[self.format]
        if self.compression is not None and self.compression not in possible:
            can_be = f"{self.format} can be {', '.join(possible)}"
            yield Problem("compression", f"is {self.compression!r}, but {can_be}")


def suffix_of(path: str) -> str:
    """The suffix of the format; a suffix of the compression after it is left out."""
    name = PurePath(path)
    if name.suffix.lower() in COMPRESSED:
        name = name.with_suffix("")
    return name.suffix.lower()


def format_by_name(path: str) -> str | None:
    """The format of a file by the end of its name, if that says it."""
    return _BY_SUFFIX.get(suffix_of(path))
