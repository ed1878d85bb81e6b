"""Formats in which executors write objects, and which of Spark's options these have there.

Spark writes files to a file system of Hadoop, and has none for object stores. What executors write
themselves are columns by Arrow, and lines, which Spark's own functions have made of rows. Options
that would have no effect are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from onyx.errors import Problem


class ObjectForm(msgspec.Struct, frozen=True):
    """A format."""

    compressions: Mapping[str, str]
    """What Spark calls them, and what they are called where they are used. The first is that of a
    job that says nothing."""
    lines: bool = False
    """Whether Spark makes lines of rows, by a function that takes the other options."""


_PLAIN = {"none": "none", "uncompressed": "none", "gzip": "gzip"}
FORMS: Mapping[str, ObjectForm] = {
    "parquet": ObjectForm({
        "snappy": "snappy", "none": "none", "uncompressed": "none", "gzip": "gzip",
        "zstd": "zstd", "lz4": "lz4", "brotli": "brotli",
    }),
    "orc": ObjectForm({
        "zstd": "zstd", "snappy": "snappy", "zlib": "zlib", "none": "uncompressed",
        "uncompressed": "uncompressed", "lz4": "lz4",
    }),
    "json": ObjectForm(_PLAIN, lines=True),
    "csv": ObjectForm(_PLAIN, lines=True),
    "text": ObjectForm(_PLAIN, lines=True),
}  # fmt: skip
_OF_FILES = frozenset({"compression", "encoding", "linesep", "header"})


def compression(form: str, options: Mapping[str, Any]) -> str:
    """That of an object, as its writer calls it."""
    known = FORMS[form].compressions
    return known[str(_option(options, "compression") or next(iter(known))).lower()]


def with_header(form: str, options: Mapping[str, Any]) -> bool:
    """Whether each object begins with the names of the columns."""
    return form == "csv" and str(_option(options, "header")).lower() == "true"


def of_lines(options: Mapping[str, Any]) -> dict[str, str]:
    """Options for Spark's functions that make lines."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
        if key.lower() not in _OF_FILES
    }


def wrong_form(form: str, options: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with a format of files in an object store, at the keys of `write`."""
    if form not in FORMS:
        what = f"is {form!r}, which Spark's executors cannot write to an object store"
        yield Problem("write.format", what, f"one of {', '.join(FORMS)}, or a path on a volume")
        return
    for key, value in options.items():
        if key.lower() == "compression" and str(value).lower() not in FORMS[form].compressions:
            what = f"is {value!r}; for {form} in an object store there are others"
            yield Problem(f"write.options.{key}", what, ", ".join(FORMS[form].compressions))
        elif not _has_effect(form, key.lower()):
            what = f"has no effect on {form} in an object store"
            yield Problem(f"write.options.{key}", what, "leave it out, or take a path on a volume")


def _has_effect(form: str, key: str) -> bool:
    if key in _OF_FILES:
        return key == "compression" or (key, form) == ("header", "csv")
    return form in ("csv", "json")


def _option(options: Mapping[str, Any], name: str) -> Any:
    """Spark's options have no case."""
    return next((value for key, value in options.items() if key.lower() == name), None)
