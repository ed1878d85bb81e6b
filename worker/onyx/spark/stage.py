"""Run a stage over the parts of a task and make its result visible by one rename.

    <path>/parts/<job>/          Parquet parts, written by all peers of the task
    <path>/.staging/<incarnation>/   a result that is not finished; removed when its writer is dead
    <path>/result/               the result of the last job that finished, with `_onyx.json`

The stage may be asked for again after any crash: a result that carries the job's id is final, and
whatever else is found is replaced. The rename is done here and not by the stage's process, because
only the worker knows whether it has been declared dead; a zombie that wakes up finds its staging
directory gone and cannot publish. Readers that can wait for `_SUCCESS` see it appear with the rest.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onyx.errors import Fenced, Unavailable, UserFunctionError
from onyx.ids import GroupId, JobId
from onyx.spark.request import StageRequest, StageRunner

MANIFEST = "_onyx.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one incarnation finds and puts the files of one task of one job."""

    root: Path
    job: JobId
    incarnation: GroupId

    @property
    def parts(self) -> Path:
        return self.root / "parts" / self.job

    @property
    def all_staging(self) -> Path:
        return self.root / ".staging"

    @property
    def staging(self) -> Path:
        return self.all_staging / self.incarnation

    @property
    def result(self) -> Path:
        return self.root / "result"


def is_done(layout: Layout) -> bool:
    """Whether the result of this job stands."""
    try:
        manifest = json.loads((layout.result / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("job") == layout.job


def run_stage(
    layout: Layout,
    request: StageRequest,
    runner: StageRunner,
    timeout_s: float,
    permitted: Callable[[], bool],
) -> None:
    """Make `<path>/result` the result of this job; nothing happens if it is already.

    Arguments:
        request: what to run; its `parts` and `target` are filled in here.
        timeout_s: longest run in seconds.
        permitted: false once this incarnation has been declared dead.

    Raises:
        UserFunctionError: the stage failed, with its message.
        Unavailable: Spark or the file system failed; try again.
        Fenced: this incarnation was declared dead meanwhile.
    """
    if is_done(layout):
        return
    parts = tuple(str(path.resolve()) for path in sorted(layout.parts.glob("*.parquet")))
    target = layout.staging / "result"
    try:
        shutil.rmtree(layout.staging, ignore_errors=True)
        layout.staging.mkdir(parents=True)
        filled = msgspec.structs.replace(request, parts=parts, target=str(target.resolve()))
        if parts or request.schema is not None:
            _run(filled, runner, timeout_s, permitted)
        else:  # No segment ever came, so nobody knows the columns: the result has no rows either.
            target.mkdir()
            (target / "_SUCCESS").touch()
        _publish(layout, filled, target, permitted)
    except OSError as error:
        if not permitted():
            raise Fenced("this worker was declared dead while its Spark stage ran") from error
        raise Unavailable(
            f"the result of stage {request.stage} cannot be written: {error}"
        ) from error
    shutil.rmtree(layout.staging, ignore_errors=True)


def fence(layout: Layout, live: Sequence[GroupId]) -> None:
    """Remove unfinished results of all incarnations but those in `live`."""
    if not layout.all_staging.is_dir():
        return
    for directory in sorted(layout.all_staging.iterdir()):
        if directory.name not in live:
            shutil.rmtree(directory, ignore_errors=True)


def _run(
    request: StageRequest, runner: StageRunner, timeout_s: float, permitted: Callable[[], bool]
) -> None:
    try:
        runner(request, timeout_s, permitted)
    except UserFunctionError as error:
        raise UserFunctionError(f"stage {request.stage} of {request.name}: {error}") from error


def _publish(
    layout: Layout, request: StageRequest, target: Path, permitted: Callable[[], bool]
) -> None:
    """Durable first, then visible. The result of an earlier job steps aside just before, so that a
    reader finds the old one, for an instant none, then the new one; never a mixture."""
    manifest = {"job": layout.job, "stage": request.stage, "format": request.result_format}
    (target / MANIFEST).write_text(json.dumps({**manifest, "parts": len(request.parts)}))
    for path in sorted(target.rglob("*")):
        _synchronise(path)
    _synchronise(target)
    if not permitted():
        raise Fenced("this worker was declared dead while its Spark stage ran")
    if layout.result.exists():
        layout.result.rename(layout.staging / "replaced")
    target.rename(layout.result)
    _synchronise(layout.root)


def _synchronise(path: Path) -> None:
    """To disk: the content of a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
