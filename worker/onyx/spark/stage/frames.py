"""What a stage gets and how it writes: the outputs of a job that share a path, as one request.

Each output writes parts of its own. Those of an output with a `frame` lie in
`<path>/frames/<frame>`, as those of a single output lie in `<path>`. By the time that any output is
sealed, the parts of all of them are durable, because all input is processed. So the output with the
stage reads them all, and the others have nothing to seal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onyx.base.path_names import path_name
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.model.report import show
from onyx.plugins.options import option_error
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import EXACT_TYPES, Frame, StageRequest, Write
from onyx.spark.located_options import given_options
from onyx.spark.session.masters import spark_for, wrong_spark_master
from onyx.spark.stage.options import SparkOptions, WriteOptions, is_frame, same_result
from onyx.storage.interface import Location


def folder_of(location: Location, frame: str | None) -> Location:
    """Where the parts of a frame are, with those of all versions of the job.

    Raises:
        UserError: no frame can be called so.
    """
    if frame is not None and not is_frame(frame):
        raise UserError(f"{show(frame)} cannot be the name of a frame: it is an argument of Python")
    return location if frame is None else location / "frames" / frame


def result_of(location: Location, job: JobId, appends: bool) -> Location:
    """Where a result is published. One that is appended is a folder that Spark reads as a partition
    of the result, by a column `job`."""
    result = location / "result"
    return result / f"job={path_name(job, 'the id of a job')}" if appends else result


def request_of(context: PluginContext, options: SparkOptions) -> StageRequest | None:
    """What the output asks for when it is sealed, without the parts; None if it has no stage.

    Raises:
        NameNotRegistered: the stage is not a function of a listed module.
        UserError: it cannot be called with these frames and params, two frames are the same, a
            variable is not set, or Spark cannot run it where this worker's own master is.
    """
    if options.stage is None:
        return None
    frames = (Frame(options.frame, schema=options.schema), *_other_frames(context, options))
    function = context.resolve(options.stage)
    wrong = why_not_callable(options.stage, function, frames, options.stage_params)
    if wrong:
        raise option_error(context, "stage", f"is {wrong}")
    where = spark_for(context, options, wrong_spark_master)
    return StageRequest(
        stage=options.stage,
        frames=frames,
        write=_write(context, options.write),
        params=options.stage_params,
        master=where.url,
        spark_conf=where.conf,
        session_conf=EXACT_TYPES,
        name=f"onyx: {context.job_name}, {context.task}",
    )


def _other_frames(context: PluginContext, options: SparkOptions) -> Iterator[Frame]:
    taken = {options.frame}
    for task, other in sorted(context.alike.items()):
        if same_result(other) != same_result(context.options):
            continue
        name = other.get("frame")
        if name is None or None in taken or name in taken:
            what = f"is that of task {task} too, so each of them needs a `frame` of its own"
            raise option_error(context, "path", what)
        taken.add(name)
        yield Frame(name, schema=other.get("schema"))


def why_not_callable(
    stage: str, function: Callable[..., Any], frames: tuple[Frame, ...], params: Mapping[str, Any]
) -> str:
    """Why a stage cannot be called so, found out before any input is processed; empty if it can."""
    by_name: Mapping[str, Any] = {each.name: None for each in frames if each.name is not None}
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function of C may have none
        return ""
    try:
        for name in by_name.keys() & params.keys():
            raise TypeError(f"{name!r} is both a frame and one of stageParams")
        signature.bind(*(each for each in frames if each.name is None), **by_name, **params)
    except TypeError as error:
        names = ", ".join([*by_name, *params]) or "one frame"
        return f"{stage}{signature}, which cannot be called with {names}: {error}"
    return ""


def _write(context: PluginContext, options: WriteOptions) -> Write:
    given = given_options(context, "write.options", options.options, options.options_env)
    return Write(
        options.format, options.mode or "overwrite", options.partition_by, given, options.repeat
    )
