"""The process of one stage: `python -m onyx.spark.child.run_stage`, a request on standard input,
the reply on standard output, everything that the stage or Spark print on standard error.

A process of its own, because a JVM inside the worker would outlive a killed task, could not be
stopped when a stage hangs, and would keep the worker's memory high for good.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from onyx.errors import OnyxError, Unavailable, UserError, UserFunctionError
from onyx.resolve import Resolver
from onyx.spark.child.request import StageFailure, StageReply, StageRequest
from onyx.spark.session.connect import doubt, is_lost
from onyx.spark.session.masters import is_connect, is_local
from onyx.spark.session.opening import open_session
from onyx.spark.session.shipping import ship
from onyx.spark.stage.parts import read_parts

MESSAGE_CHARACTERS_MAX = 2_000
FRAMES_MAX = 4
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run one request. The exit code is 0 whenever there is a reply."""
    reply_to = _keep_standard_output()
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=StageRequest)
    if request.parent_pid:
        die_with(request.parent_pid)
    reply_to.write(msgspec.json.encode(answer(request)))
    reply_to.close()
    return 0


def answer(request: StageRequest) -> StageReply:
    """Run the stage; the reply reports any failure."""
    try:
        run(request)
    except OnyxError as error:
        return StageReply(StageFailure(shortened(str(error)), isinstance(error, UserError)))
    except Exception as error:
        return StageReply(StageFailure(_unexpected(error), by_user=False))
    return StageReply()


def run(request: StageRequest) -> None:
    """Read the parts, apply the stage, write the result.

    Raises:
        NameNotRegistered: the stage does not exist.
        UserFunctionError: the stage raised, now or when Spark evaluated what it built.
        Unavailable: Spark does not start.
    """
    function = named(request.stage)
    with tempfile.TemporaryDirectory(prefix="onyx-spark-") as scratch:
        session = open_session(request.master, request.name, Path(scratch), request.spark_conf)
        try:
            if not is_local(request.master):
                ship(session, request.stage, Path(scratch))
            frame = read_parts(session, request.parts, request.schema)
            _apply(function, frame, request)
        except Exception as error:
            raise _blamed(error, session, request.master) from error
        session.stop()


def named(name: str) -> Callable[[Any], Any]:
    """The function `package.module:name`, by the rules of all names in a job. Its module counts as
    listed here: the worker that asks has resolved the name among its own modules.

    Raises:
        NameNotRegistered: the module defines no such function.
        SettingsError: the module cannot be imported.
    """
    return Resolver((name.partition(":")[0],)).resolve(name)


def _blamed(error: Exception, session: Any, master: str) -> Exception:
    """An error of a stage, or of the server that ran it. A session whose server is gone is not
    stopped, which would wait for that; the process ends in a moment anyway."""
    if not is_connect(master):
        session.stop()
        return error
    cause = error.__cause__ if isinstance(error, UserFunctionError) else error
    if cause is not None and is_lost(cause):
        return Unavailable(
            f"the Spark Connect server at {master} was lost while the stage ran: "
            f"{_message(cause).splitlines()[0]}"
        )
    remark = doubt(session)
    session.stop()
    return type(error)(f"{error} ({remark})") if remark and isinstance(error, OnyxError) else error


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


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux). The JVM
    follows, because it reads the end of its standard input, which is ours."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit("the worker that asked for this stage is gone")


def _keep_standard_output() -> BinaryIO:
    """Standard output for the reply alone; what the stage prints goes to standard error."""
    kept = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return kept


if __name__ == "__main__":
    # At once: a connection to a server that says nothing would hold the process.
    os._exit(main())
