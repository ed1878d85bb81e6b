"""Which files an output is, from the options of a Spark user: its published parts, or the files of
a stage's result, in a folder or a bucket.

A path is enough, and no ZooKeeper is asked then. A job and a task are looked up in the log, as
`onyx jobs` does. Staged parts lie in folders below and have other names, so a listing never has
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from onyx.base.structs import stored
from onyx.errors import UserError
from onyx.model.plugins import OUTPUTS, makes_one_result
from onyx.plugins.parts.folders import files_in, parts_in, whose
from onyx.plugins.parts.offsets import Part
from onyx.spark.result_files import MANIFEST
from onyx.spark_source.options import SourceOptions
from onyx.storage.opening import location_of

_READABLE = [row.name for row in OUTPUTS.values() if row.keeps_parts]
_RESULT = re.compile(r".*\.(parquet|json|json\.gz|jsonl|jsonl\.gz)")


class PartFolder(msgspec.Struct, frozen=True):
    """A folder, and what is put before the names of its writers."""

    path: str
    """Absolute, or a URL."""
    writers: str = ""


class FoundOutput(msgspec.Struct, frozen=True):
    """An output."""

    output: OutputFiles
    schema: pa.Schema | None
    """The schema of its catalog entry."""


class OutputFiles(msgspec.Struct, frozen=True):
    """Where the rows of an output are."""

    folders: tuple[PartFolder, ...]
    content: Literal["result", "parts"]
    task: str | None
    """None: all tasks that wrote there."""
    name: str
    """In messages."""
    jobs: tuple[str, ...] = ()
    """Whose parts; none: of all jobs that wrote there."""


def output_at(
    path: str, options: SourceOptions, plugin: str | None = None, frame: str | None = None
) -> OutputFiles:
    """The files of an output at a path.

    Args:
        path: of the output, as its task has it.
        options: what of it is wanted.
        plugin: `files` or `spark`; None: by what lies there.
        frame: of the task, if it is one of several frames of a stage.

    Raises:
        UserError: it is not there, or its parts cannot be attributed to a job.
    """
    folder = str(location_of(path))
    name = _named(options, folder)
    by_spark = (holds(folder, each) for each in ("parts", "result", "frames"))
    of_spark = any(by_spark) if plugin is None else makes_one_result("output", plugin)
    if not of_spark:
        return OutputFiles((PartFolder(folder),), "parts", options.task, name, _jobs(options))
    if options.content == "result":
        return _result(folder, options, name)
    frame = frame or options.frame
    folder = folder if frame is None else below(folder, f"frames/{frame}")
    if options.job is None:
        raise UserError(
            f"{name}: option 'job' is missing: the parts of an output `spark` are those of a job"
        )
    jobs = _versions(folder, options.job)
    folders = tuple(PartFolder(below(folder, f"parts/{job}"), f"{job}/") for job in jobs)
    return OutputFiles(folders, "parts", None, name)


def readable(plugin: str, name: str) -> None:
    """Raises UserError if what an output of this plugin writes cannot be read here."""
    if plugin not in _READABLE:
        raise UserError(
            f"{name} is an output {plugin!r}; outputs {' and '.join(_READABLE)} can be read. Read "
            "what others write where they write it"
        )


def _result(folder: str, options: SourceOptions, name: str) -> OutputFiles:
    """The result that replaced those before, or those that were appended."""
    result = below(folder, "result")
    whose = _job_of(result)
    again = 'its parts can be read with option("content", "parts")'
    if whose is None:
        added = [each for each in subfolders(result) if each.startswith("job=")]
        wanted = added if options.job is None else [f"job={options.job}"]
        folders = tuple(PartFolder(below(result, each)) for each in sorted(wanted) if each in added)
        if not folders:
            raise UserError(
                f"{name}: there is no result here: the stage runs at the end of a job, and may "
                f"write elsewhere; {again}"
            )
        return OutputFiles(folders, "result", None, name)
    if options.job is not None and whose != options.job:
        raise UserError(f"{name}: the result is of job {whose}, not of {options.job}; {again}")
    return OutputFiles((PartFolder(result),), "result", None, name)


def _job_of(result: str) -> str | None:
    manifest = document(result, MANIFEST)
    job = manifest.get("job") if isinstance(manifest, dict) else None
    return None if job is None else str(job)


def _versions(folder: str, job: str) -> list[str]:
    """The job and those that it upgraded, the oldest first: what its stage reads."""
    note = document(below(folder, f"parts/{job}"), MANIFEST)
    after = note.get("after", []) if isinstance(note, dict) else []
    return [*reversed(after), job]


def _jobs(options: SourceOptions) -> tuple[str, ...]:
    """Whose parts are asked for. By job and task alone a stream follows all later versions too."""
    given = (options.job or "").split(",") if options.path is not None else ()
    return tuple(job.strip() for job in given if job.strip())


def _named(options: SourceOptions, folder: str) -> str:
    if options.job is None or options.task is None:
        return f"output {folder}"
    return f"job {options.job}, task {options.task}"


def published(output: OutputFiles) -> list[Part]:
    """All files of an output, in a stable order.

    Raises:
        NotThere: a folder does not exist here.
        UserError: it cannot be listed.
        Unavailable: the object store does not answer.
    """
    of = _files_of_result if output.content == "result" else _parts
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


def _parts(output: OutputFiles, folder: PartFolder) -> Iterator[Part]:
    found = parts_in(folder.path, partial(_is_wanted, output), output.name)
    return (replace(part, writer=folder.writers + part.writer) for part in found)


def _is_wanted(output: OutputFiles, of: str) -> bool:
    task, jobs = output.task, output.jobs
    if task is None:
        return not jobs or any(of.endswith(whose("", job)) for job in jobs)
    if jobs:
        return any(of == whose(task, job) for job in jobs)
    return of.startswith(whose(task, ""))


def _files_of_result(output: OutputFiles, folder: PartFolder) -> Iterator[Part]:
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
