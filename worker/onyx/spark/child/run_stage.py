"""One run of a stage in the Spark child: read the parts, apply the function, write the result, and
say what went wrong in words for the person who wrote the stage."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from onyx.errors import FailsAgain, Fenced, OnyxError, Unavailable, UserFunctionError
from onyx.model.report import show
from onyx.path_names import PLAIN_NAMES, is_plain_name
from onyx.resolve import Resolver
from onyx.spark.child.frames import frame_of
from onyx.spark.child.protocol import StageFailure
from onyx.spark.child.request import Frame, StageRequest
from onyx.spark.objects.carried import carried_in
from onyx.spark.objects.frames import read_parts
from onyx.spark.objects.staged import write_list
from onyx.spark.objects.writing import write_objects
from onyx.spark.session.blame import blame, message_of_spark, shortened
from onyx.spark.session.connect import doubt, is_lost
from onyx.spark.session.kept import Sessions, StaleSession
from onyx.spark.session.masters import is_connect, is_local
from onyx.spark.session.shipping import ship

PARTS_NOT_SEEN = "PATH_NOT_FOUND"
"""What Spark calls files that are not there."""
DEFAULT_OPTIONS = {"json": {"ignoreNullFields": "false"}}
"""Default options of formats, where Spark's own would lose something."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the child gives to a run."""

    sessions: Sessions
    group: str
    """A session for a run."""
    scratch: Path
    """Folder for files."""
    cancelled: Callable[[], bool] = lambda: False
    """Whether the run is to end soon."""
    begin_write: Callable[[], None] = lambda: None
    """Returns when a direct write is permitted, or the run cancelled."""
    seen: Callable[[], None] = lambda: None
    """Reports how far the run is; called before the session is closed."""

    def go_on(self) -> None:
        """Raises Fenced: the run was cancelled, perhaps while there was nothing to cancel."""
        if self.cancelled():
            raise Fenced("the run was cancelled")


def answer(request: StageRequest, turn: Turn) -> StageFailure | None:
    """Run the stage; None if it went well."""
    try:
        run(request, turn)
    except StaleSession as error:
        return StageFailure(shortened(str(error)), by_user=False, stale=True)
    except Exception as error:
        found = blame(error)
        return StageFailure(shortened(found.message), found.by_user, away=found.away)
    return None


def run(request: StageRequest, turn: Turn) -> None:
    """Read the parts, apply the stage, write the result.

    Raises:
        NameNotRegistered: the stage does not exist.
        FailsAgain: the stage raised, now or when Spark evaluated what it built.
        UserFunctionError: it failed, and nobody knows whose fault it is.
        Unavailable: Spark does not start, or was lost.
        Fenced: the run was cancelled.
    """
    function = _function(request)
    session = turn.sessions.open(turn.group, request.name)
    try:
        turn.go_on()
        for key, value in request.session_conf.items():
            if key not in request.spark_conf:
                session.conf.set(key, value)
        with tempfile.TemporaryDirectory(dir=turn.scratch) as own:
            if not is_local(request.master) and _names_function(request):
                ship(session, request.stage, Path(own))
            _write(_result(function, _given(session, request), request), request, turn)
    except Exception as error:
        raise _blamed(error, session, turn.sessions, request.master) from error
    turn.seen()
    turn.sessions.close()


def _function(request: StageRequest) -> Callable[..., Any]:
    """What makes the DataFrame that is written. Raises like `named`."""
    function = named(request.stage) if _names_function(request) else None
    if request.source is None:
        assert function is not None, "a stage is a function"
        return function
    return partial(frame_of, request.source, function)


def _names_function(request: StageRequest) -> bool:
    return request.source is None or request.source.format is None


def _given(session: Any, request: StageRequest) -> list[tuple[str | None, Any]]:
    """What the function gets beside its params, by name or by place."""
    if request.source is not None:
        return [(None, session)]
    return [(each.name, _read(session, each)) for each in request.frames]


def named(name: str) -> Callable[[Any], Any]:
    """The function `package.module:name`, by the rules of all names in a job. Its module counts as
    listed here: the worker that asks has resolved the name among its own modules.

    Raises:
        NameNotRegistered: the module defines no such function.
        SettingsError: the module cannot be imported.
    """
    return Resolver((name.partition(":")[0],)).resolve(name)


def _blamed(error: Exception, session: Any, sessions: Sessions, master: str) -> Exception:
    """An error of a stage, or of the JVM or server that ran it. A session whose server is gone is
    not closed, which would wait for that; the process ends in a moment anyway."""
    cause = error.__cause__ if isinstance(error, UserFunctionError | Unavailable) else error
    if (of_store := carried_in(cause or error)) is not None:
        return _closed(sessions, of_store)
    if not is_connect(master):
        if isinstance(error, Fenced | StaleSession) or not sessions.is_gone():
            return _closed(sessions, error)
        said = message_of_spark(cause or error).partition("\n")[0]
        return Unavailable(
            "the JVM of Spark has ended while the stage ran; was it killed, or out of memory? "
            f"({type(cause or error).__name__}: {said})"
        )
    if cause is not None and is_lost(cause):
        return Unavailable(
            f"the Spark Connect server at {master} was lost while the stage ran: "
            f"{message_of_spark(cause).splitlines()[0]}"
        )
    remark = doubt(session)
    if remark and isinstance(error, OnyxError):
        error = type(error)(f"{error} ({remark})")
    return _closed(sessions, error)


def _closed(sessions: Sessions, error: Exception) -> Exception:
    """What failed first is the error, even if the session cannot be closed any more."""
    with contextlib.suppress(Exception):
        sessions.close()
    return error


def _read(session: Any, frame: Frame) -> Any:
    from pyspark.errors import AnalysisException

    where = "" if frame.name is None else f"frame {frame.name!r}: "
    try:
        return read_parts(session, frame.parts, frame.schema)
    except UserFunctionError as error:
        raise type(error)(f"{where}{error}") from error
    except AnalysisException as error:
        if error.getCondition() == PARTS_NOT_SEEN:
            raise  # a volume that both share may lag behind
        what = "give the task a `schema`" if frame.schema is None else "change the task's `schema`"
        raise FailsAgain(
            f"{where}the parts do not fit in one DataFrame: {message_of_spark(error)}; {what}"
        ) from error


def _result(
    function: Callable[..., Any], frames: list[tuple[str | None, Any]], request: StageRequest
) -> Any:
    """The DataFrame that the stage makes."""
    by_place = [frame for name, frame in frames if name is None]
    by_name = {name: frame for name, frame in frames if name is not None}
    try:
        result = function(*by_place, **by_name, **request.params)
        if not hasattr(result, "write"):
            raise TypeError(f"a stage returns a DataFrame, this one a {type(result).__name__}")
    except Exception as error:
        raise blame(error, of_user=True).error() from error
    return result


def _write(result: Any, request: StageRequest, turn: Turn) -> None:
    """Have Spark evaluate and write the result."""
    write = request.write
    options = {**DEFAULT_OPTIONS.get(write.format, {}), **write.options}
    for column in write.partition_by:
        if not is_plain_name(column):
            raise FailsAgain(f"write.partitionBy: {show(column)} is no name: {PLAIN_NAMES}")
    try:
        if request.objects is not None and not write.direct:
            written = write_objects(
                result, request.objects, write.format, options, write.partition_by
            )
            write_list(Path(request.target), written)
            return
        writer = result.write.format(write.format).options(**options)
        if write.partition_by:
            writer = writer.partitionBy(*write.partition_by)
        if write.direct:
            turn.begin_write()
            turn.go_on()
            writer.mode(write.mode).save()
        else:  # Spark makes the target itself and writes nothing when it exists.
            writer.save(request.target)
    except OnyxError:
        raise
    except Exception as error:
        raise blame(error, of_user=True).error() from error
