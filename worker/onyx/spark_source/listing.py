"""The published parts of an output and the files of a stage's result, in a folder or a bucket.

Staged parts lie in folders below and have other names, so a listing never has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from onyx.base.structs import stored
from onyx.errors import UserError
from onyx.plugins.parts.folders import files_in, parts_in, whose
from onyx.plugins.parts.offsets import Part
from onyx.spark.result_files import MANIFEST
from onyx.storage.opening import location_of

_RESULT = re.compile(r".*\.(parquet|json|json\.gz|jsonl|jsonl\.gz)")


class Folder(msgspec.Struct, frozen=True):
    """A folder, and what is put before the names of its writers."""

    path: str
    """Absolute, or a URL."""
    writers: str = ""


class OutputFiles(msgspec.Struct, frozen=True):
    """Where the rows of an output are."""

    folders: tuple[Folder, ...]
    content: Literal["result", "parts"]
    task: str | None
    """None: all tasks that wrote there."""
    name: str
    """In messages."""
    jobs: tuple[str, ...] = ()
    """Whose parts; none: of all jobs that wrote there."""


def published(output: OutputFiles) -> list[Part]:
    """All files of an output, in a stable order.

    Raises:
        NotThere: a folder does not exist here.
        UserError: it cannot be listed.
        Unavailable: the object store does not answer.
    """
    of = _result if output.content == "result" else _parts
    found = (part for folder in output.folders for part in of(output, folder))
    return sorted(found, key=lambda part: part.path)


def document(folder: str, name: str) -> Any:
    """A JSON document of a folder; None if it is not there.

    Raises:
        UserError: it is damaged, or may not be read.
    """
    data = location_of(folder).read(name)
    return None if data is None else stored(data, Any, f"{folder}/{name}", "restore it from a copy")


def below(folder: str, name: str) -> str:
    """What is below a folder."""
    return str(location_of(folder) / name)


def holds(folder: str, name: str) -> bool:
    """Whether a folder has something of this name."""
    return (location_of(folder) / name).entries() is not None


def subfolders(folder: str) -> list[str]:
    """Names of the folders in a folder; none if it is not there."""
    return [each.name for each in location_of(folder).entries() or () if each.is_folder]


def _parts(output: OutputFiles, folder: Folder) -> Iterator[Part]:
    found = parts_in(folder.path, partial(_is_wanted, output), output.name)
    return (replace(part, writer=folder.writers + part.writer) for part in found)


def _is_wanted(output: OutputFiles, of: str) -> bool:
    task, jobs = output.task, output.jobs
    if task is None:
        return not jobs or any(of.endswith(whose("", job)) for job in jobs)
    if jobs:
        return any(of == whose(task, job) for job in jobs)
    return of.startswith(whose(task, ""))


def _result(output: OutputFiles, folder: Folder) -> Iterator[Part]:
    manifest = document(folder.path, MANIFEST)
    named = manifest.get("files") if isinstance(manifest, dict) else None
    # What is below a folder counts as that folder, which cannot be read here.
    valid = named and {head + slash for head, slash, _ in (each.partition("/") for each in named)}
    files = sorted(files_in(folder.path, output.name))
    for number, (name, path, size_bytes) in enumerate(files):
        if name.startswith(("_", ".")) or (valid is not None and name not in valid):
            continue
        if _RESULT.fullmatch(name) is None:
            raise UserError(
                f"{output.name}: {folder.path} has {name}, and only Parquet and JSON without "
                f"folders can be read here: spark.read.format(...).load({folder.path!r}) reads it"
            )
        yield Part(path, "result", number, size_bytes)
