"""One run of a stage in the Spark child: read the parts, apply the function or the query, have
Spark write the result, and say what went wrong in words for the person who wrote the stage.

Invariant: the text of a query reads the views of the frames and the tables of Spark's catalog, and
changes nothing. It is the inner select of another one, so no command gets through. A session for it
reads no files by their paths, and puts no variables into the text. `compiler.refusals` refuses what
runs code.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from onyx.base.path_names import PLAIN_NAMES, is_plain_name
from onyx.errors import FailsAgain, Fenced, OnyxError, Unavailable, UserFunctionError
from onyx.model.report import show
from onyx.plugins.files.spark_footer import unreadable
from onyx.spark.child.protocol import StageFailure
from onyx.spark.child.request import Frame, FrameSource, StageRequest
from onyx.spark.objects.messages import carried_in, write_list
from onyx.spark.objects.reading import read_parts
from onyx.spark.objects.writing import write_objects
from onyx.spark.session.blame import blame, message_of_spark, shortened
from onyx.spark.session.connect import doubt, is_lost
from onyx.spark.session.kept import Sessions, StaleSession
from onyx.spark.session.masters import is_connect, is_local
from onyx.spark.session.shipping import ship
from onyx.user_code.resolve import Resolver

PARTS_NOT_SEEN = "PATH_NOT_FOUND"
"""What Spark calls files that are not there."""
VIEW = "segments"
"""What the only frame is called."""
_CLOSED = {"spark.sql.runSQLOnFiles": "false", "spark.sql.variable.substitute": "false"}
DEFAULT_OPTIONS = {"json": {"ignoreNullFields": "false"}}
"""Default options of formats, where Spark's own would lose something."""


class Turn(msgspec.Struct, frozen=True):
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

    def may_write(self) -> None:
        """Returns when a direct write may begin. Raises like `go_on`."""
        self.begin_write()
        # The permission may have come because the run was cancelled while it waited for one.
        self.go_on()


def answer(request: StageRequest, turn: Turn) -> StageFailure | None:
    """Run the stage; None if it went well."""
    try:
        run(request, turn)
    except Exception as error:
        return said_of(error)
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
            frames = given(session, request)
            result = (
                queried(session, frames, request)
                if function is None
                else result_of(function, frames, request)
            )
            write(result, request, turn.may_write)
    except Exception as error:
        raise failure_of(error, session, turn.sessions, request.master) from error
    turn.seen()
    turn.sessions.close()


def _function(request: StageRequest) -> Callable[..., Any] | None:
    """What makes the DataFrame that is written; None for a query. Raises like `named`."""
    if request.query is not None:
        return None
    function = named(request.stage) if _names_function(request) else None
    if request.source is None:
        assert function is not None, "a stage is a function"
        return function
    return partial(frame_of, request.source, function)


def _names_function(request: StageRequest) -> bool:
    of_format = request.source is not None and request.source.format is not None
    return request.query is None and not of_format


def named(name: str) -> Callable[[Any], Any]:
    """The function `package.module:name`, by the rules of all names in a job. Its module counts as
    listed here: the worker that asks has resolved the name among its own modules.

    Raises:
        NameNotRegistered: the module defines no such function.
        SettingsError: the module cannot be imported.
    """
    return Resolver((name.partition(":")[0],)).resolve(name)


def frame_of(
    source: FrameSource, function: Callable[..., Any] | None, session: Any, /, **params: Any
) -> Any:
    """The DataFrame of a source.

    Args:
        source: says what `session` reads if there is no function.
        function: gets the session and `params`.

    Raises:
        ValueError: it is a stream, which has no end.
    """
    if function is not None:
        frame = function(session, **params)
    else:
        reader = session.read.format(source.format).options(**source.options)
        frame = (reader if source.schema is None else reader.schema(source.schema)).load()
    if getattr(frame, "isStreaming", False):
        raise ValueError("a DataFrame of readStream has no end: take spark.read")
    return frame


def given(session: Any, request: StageRequest) -> list[tuple[str | None, Any]]:
    """What the function gets beside its params, by name or by its position."""
    if request.source is not None:
        return [(None, session)]
    return [(each.name, _read(session, each)) for each in request.frames]


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


def result_of(
    function: Callable[..., Any], frames: list[tuple[str | None, Any]], request: StageRequest
) -> Any:
    """The DataFrame that the stage makes."""
    by_position = [frame for name, frame in frames if name is None]
    by_name = {name: frame for name, frame in frames if name is not None}
    try:
        result = function(*by_position, **by_name, **request.params)
        if not hasattr(result, "write"):
            raise TypeError(f"a stage returns a DataFrame, this one a {type(result).__name__}")
    except Exception as error:
        raise blame(error, of_user=True).error() from error
    return result


def queried(session: Any, frames: list[tuple[str | None, Any]], request: StageRequest) -> Any:
    """The DataFrame of a query.

    Args:
        frames: by name, or the only one.
    """
    assert request.query is not None, "it asks for one"
    for name, frame in frames:
        frame.createOrReplaceTempView(name or VIEW)
    for key, value in _CLOSED.items():
        session.conf.set(key, value)
    try:
        inner = f"select * from ({request.query.strip().rstrip(';')}\n)"  # noqa: S608
        return session.sql(inner, args=request.params or None)
    except Exception as error:
        raise blame(error, of_user=True).error() from error


def write(result: Any, request: StageRequest, may_write: Callable[[], None]) -> None:
    """Have Spark evaluate and write the result.

    Args:
        may_write: returns when a direct write may begin.
    """
    how = request.write
    if request.as_segments and (wrong := unreadable(result.schema.jsonValue())):
        raise FailsAgain(f"the result cannot become segments: {wrong}")
    options = {**DEFAULT_OPTIONS.get(how.format, {}), **how.options}
    for column in how.partition_by:
        if not is_plain_name(column):
            raise FailsAgain(f"write.partitionBy: {show(column)} is no name: {PLAIN_NAMES}")
    try:
        if request.objects is not None and not how.direct:
            written = write_objects(result, request.objects, how.format, options, how.partition_by)
            write_list(Path(request.target), written)
            return
        writer = result.write.format(how.format).options(**options)
        if how.partition_by:
            writer = writer.partitionBy(*how.partition_by)
        if how.direct:
            may_write()
            writer.mode(how.mode).save()
        else:  # Spark makes the target itself and writes nothing when it exists.
            writer.save(request.target)
    except OnyxError:
        raise
    except Exception as error:
        raise blame(error, of_user=True).error() from error


def failure_of(error: Exception, session: Any, sessions: Sessions, master: str) -> Exception:
    """The error of a stage, or of the JVM or server that ran it. A session whose server is gone is
    not closed, which would wait for that; the process ends in a moment anyway."""
    cause = error.__cause__ if isinstance(error, UserFunctionError | Unavailable) else error
    if (of_store := carried_in(cause or error)) is not None:
        return _closed(sessions, of_store)
    if not is_connect(master):
        if isinstance(error, Fenced | StaleSession) or not (died := sessions.how_ended()):
            return _closed(sessions, error)
        said = message_of_spark(cause or error).partition("\n")[0]
        return Unavailable(
            f"the JVM of Spark {died} while the stage ran; `spark.driver.memory` gives it "
            f"more memory ({type(cause or error).__name__}: {said})"
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


def said_of(error: Exception) -> StageFailure:
    """What the child says of a run that has failed."""
    if isinstance(error, StaleSession):
        return StageFailure(shortened(str(error)), by_user=False, stale=True)
    found = blame(error)
    return StageFailure(shortened(found.message), found.by_user, away=found.away)
