"""What a stage in the middle of a job is asked: its frames by the tasks upstream, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from onyx.errors import FailsAgain
from onyx.plugins.options import folder_at, read_options, task_error
from onyx.plugins.parts.folders import folder_name
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import EXACT_TYPES, Frame, StageRequest
from onyx.spark.compiler.refusals import why_refused
from onyx.spark.middle.bundles import Bundles
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.session.masters import spark_for, wrong_spark_master
from onyx.spark.stage.frames import why_not_callable
from onyx.storage.interface import Location


def folder_of(context: PluginContext, options: MiddleOptions) -> Bundles:
    """Where the bundles of a task are."""
    location = folder_at(context, options.path) / folder_name(context)
    return Bundles(location, context.clock)


def location_of_task(context: PluginContext) -> Location:
    """The location of a stage in a query, by the options of the task. Raises UserError as
    `read_options`."""
    return folder_at(context, options_of(context).path) / folder_name(context)


def options_of(context: PluginContext) -> MiddleOptions:
    """The options of a task with a stage. Raises UserError as `read_options`."""
    return read_options(context, MiddleOptions)


def request_of(context: PluginContext, options: MiddleOptions) -> StageRequest:
    """A run of the stage, without the parts and the target.

    Raises:
        NameNotRegistered: the stage is not a function of a listed module.
        UserError: the query is refused, the function cannot be called with these frames and params,
            two tasks upstream give frames of the same name, a schema is of no task upstream, or
            Spark cannot run it where this worker's own master is.
    """
    stage = context.spark_stage
    assert stage is not None, "the task has one"
    frames = tuple(
        Frame(name, schema=options.schemas.get(task)) for task, name in _names(context).items()
    )
    for task in options.schemas.keys() - set(context.upstream):
        others = ", ".join(context.upstream)
        what = f"option 'schemas' has {task!r}, which is no task upstream; these are: {others}"
        raise task_error(context, what)
    wrong = _why_not(context, stage, frames, options)
    if wrong:
        raise task_error(context, wrong)
    where = spark_for(context, options, wrong_spark_master)
    return StageRequest(
        stage=stage,
        frames=frames,
        query=context.spark_sql,
        params=options.stage_params,
        master=where.url,
        spark_conf=where.conf,
        session_conf=EXACT_TYPES,
        name=f"onyx: {context.job_name}, {context.task}",
    )


def _why_not(
    context: PluginContext, stage: str, frames: tuple[Frame, ...], options: MiddleOptions
) -> str:
    """Why the stage cannot be run over these frames; empty if it can."""
    if context.spark_sql is not None:
        wrong = why_refused(context.spark_sql)
        return f"sparkSql {wrong}" if wrong else ""
    wrong = why_not_callable(stage, context.resolve(stage), frames, options.stage_params)
    return f"sparkStage is {wrong}" if wrong else ""


def filled(
    frames: Sequence[Frame], parts: Mapping[str, tuple[str, ...]], whole: str
) -> tuple[Frame, ...]:
    """Frames with their parts.

    Args:
        parts: paths by the task upstream, in the order of the frames.
        whole: what they are all parts of, for errors.

    Raises:
        FailsAgain: the columns of a frame are not known.
    """
    found = []
    for frame, (task, paths) in zip(frames, parts.items(), strict=True):
        if not paths and frame.schema is None:
            raise FailsAgain(
                f"{whole} has no segment of task {task}, so its columns are not known: give the "
                f"option `schemas: {{{task}: ...}}`"
            )
        found.append(msgspec.structs.replace(frame, parts=paths))
    return tuple(found)


def _names(context: PluginContext) -> dict[str, str | None]:
    """For each task upstream the argument that gets its segments. The only one is given by its
    position; several by the names of their tasks, as Python may have them."""
    if len(context.upstream) == 1:
        return {context.upstream[0]: None}
    names: dict[str, str | None] = {}
    for task in context.upstream:
        name = task.replace("-", "_")
        if name in names.values():
            other = next(each for each, taken in names.items() if taken == name)
            what = f"tasks {other} and {task} upstream would both be the frame {name!r}: rename one"
            raise task_error(context, what)
        names[task] = name
    return names
