"""Which files an output is, from the options of a Spark user.

A path is enough, and no ZooKeeper is asked then. A job and a task are looked up in the log, as
`onyx jobs` does.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from onyx.errors import UserError
from onyx.model.plugins import OUTPUTS, makes_one_result
from onyx.spark.result_files import MANIFEST
from onyx.spark_source.listing import (
    Folder,
    OutputFiles,
    below,
    document,
    holds,
    subfolders,
)
from onyx.spark_source.options import SourceOptions
from onyx.storage.opening import location_of

_READABLE = [row.name for row in OUTPUTS.values() if row.keeps_parts]


class Found(msgspec.Struct, frozen=True):
    """An output."""

    output: OutputFiles
    schema: pa.Schema | None
    """The schema of its catalog entry."""


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
        return OutputFiles((Folder(folder),), "parts", options.task, name, _jobs(options))
    if options.content == "result":
        return _result(folder, options, name)
    frame = frame or options.frame
    folder = folder if frame is None else below(folder, f"frames/{frame}")
    if options.job is None:
        raise UserError(
            f"{name}: option 'job' is missing: the parts of an output `spark` are those of a job"
        )
    jobs = _versions(folder, options.job)
    folders = tuple(Folder(below(folder, f"parts/{job}"), f"{job}/") for job in jobs)
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
        folders = tuple(Folder(below(result, each)) for each in sorted(wanted) if each in added)
        if not folders:
            raise UserError(
                f"{name}: there is no result here: the stage runs at the end of a job, and may "
                f"write elsewhere; {again}"
            )
        return OutputFiles(folders, "result", None, name)
    if options.job is not None and whose != options.job:
        raise UserError(f"{name}: the result is of job {whose}, not of {options.job}; {again}")
    return OutputFiles((Folder(result),), "result", None, name)


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
