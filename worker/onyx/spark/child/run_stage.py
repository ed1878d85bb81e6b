"""One run of a stage in the Spark child: read the parts, apply the function, write the result, and
say what went wrong in words for the person who wrote the stage."""

from __future__ import annotations

import contextlib
import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onyx.errors import Fenced, OnyxError, Unavailable, UserError, UserFunctionError
from onyx.resolve import Resolver
from onyx.spark.child.protocol import StageFailure
from onyx.spark.child.request import StageRequest
from onyx.spark.session.connect import doubt, is_lost
from onyx.spark.session.kept import Sessions, StaleSession
from onyx.spark.session.masters import is_connect, is_local
from onyx.spark.session.shipping import ship
from onyx.spark.stage.parts import read_parts

MESSAGE_CHARACTERS_MAX = 2_000
FRAMES_MAX = 4


def answer(
    request: StageRequest,
    sessions: Sessions,
    group: str,
    scratch: Path,
    cancelled: Callable[[], bool],
) -> StageFailure | None:
    """Run the stage; None if it went well.

    Args:
        group: see `Sessions.open`.
        scratch: folder for files of this run.
        cancelled: whether the run is to end soon.
    """
    try:
        run(request, sessions, group, scratch, cancelled)
    except StaleSession as error:
        return StageFailure(shortened(str(error)), by_user=False, stale=True)
    except OnyxError as error:
        return StageFailure(shortened(str(error)), isinstance(error, UserError))
    except Exception as error:
        return StageFailure(_unexpected(error), by_user=False)
    return None


def run(
    request: StageRequest,
    sessions: Sessions,
    group: str,
    scratch: Path,
    cancelled: Callable[[], bool],
) -> None:
    """Read the parts, apply the stage, write the result.

    Raises:
        NameNotRegistered: the stage does not exist.
        UserFunctionError: the stage raised, now or when Spark evaluated what it built.
        Unavailable: Spark does not start.
        Fenced: the run was cancelled before it began.
    """
    function = named(request.stage)
    session = sessions.open(group, request.name)
    try:
        if cancelled():  # while Spark started, and there was nothing to cancel
            raise Fenced("the run was cancelled")
        with tempfile.TemporaryDirectory(dir=scratch) as own:
            if not is_local(request.master):
                ship(session, request.stage, Path(own))
            frame = read_parts(session, request.parts, request.schema)
            _apply(function, frame, request)
    except Exception as error:
        raise _blamed(error, session, sessions, request.master) from error
    sessions.close()


def named(name: str) -> Callable[[Any], Any]:
    """The function `package.module:name`, by the rules of all names in a job. Its module counts as
    listed here: the worker that asks has resolved the name among its own modules.

    Raises:
        NameNotRegistered: the module defines no such function.
        SettingsError: the module cannot be imported.
    """
    return Resolver((name.partition(":")[0],)).resolve(name)


def _blamed(error: Exception, session: Any, sessions: Sessions, master: str) -> Exception:
    """An error of a stage, or of the server that ran it. A session whose server is gone is not
    closed, which would wait for that; the process ends in a moment anyway."""
    if not is_connect(master):
        return _closed(sessions, error)
    cause = error.__cause__ if isinstance(error, UserFunctionError) else error
    if cause is not None and is_lost(cause):
        return Unavailable(
            f"the Spark Connect server at {master} was lost while the stage ran: "
            f"{_message(cause).splitlines()[0]}"
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


def _apply(function: Callable[[Any], Any], frame: Any, request: StageRequest) -> None:
    try:
        result = function(frame)
        if not hasattr(result, "write"):
            raise TypeError(f"a stage returns a DataFrame, this one a {type(result).__name__}")
        # Spark makes the target itself and writes nothing when it exists.
        if request.result_format == "jsonl":
            result.write.json(request.target, ignoreNullFields=False)
        else:
            result.write.parquet(request.target)
    except Exception as error:
        raise UserFunctionError(failure_message(error)) from error


def failure_message(error: Exception) -> str:
    """An exception of a stage: type, message, and the places in the user's own files."""
    ours = (str(Path(__file__).parents[2]), f"{os.sep}pyspark{os.sep}", f"{os.sep}py4j{os.sep}")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in ours)
    ]
    places = "".join(
        f"\n  at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames[-FRAMES_MAX:]
    )
    return shortened(f"{type(error).__name__}: {_message(error)}") + places


def _message(error: BaseException) -> str:
    """The message without the JVM's own stack trace, which Spark appends."""
    text = str(error).partition("\n\nJVM stacktrace")[0]
    return text.partition("\n\tat ")[0].strip()


def _unexpected(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {_message(error)}")


def shortened(text: str) -> str:
    """At most `MESSAGE_CHARACTERS_MAX` characters: Spark's messages can fill pages. The end is
    kept rather than the middle, because that is where the exception of a UDF stands."""
    if len(text) <= MESSAGE_CHARACTERS_MAX:
        return text
    half = MESSAGE_CHARACTERS_MAX // 2
    return f"{text[:half]} ... {text[-half:]}"
