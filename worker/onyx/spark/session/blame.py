"""Whose fault an error of Spark is, and the line of it that says so.

Three kinds, because each is tried again in another way (`plugins.attempts`). What is wrong with the
job is final at once: a column that does not exist, a module that is missing, what a function
raises. What Spark, or a connection, has lost is waited for. The rest may be either, and is tried a
few times. Spark says the kind by the SQLSTATE of its error conditions, whose first two characters
are a class of the SQL standard; what has none is known by the types in its text. To list the names
of Spark's conditions was rejected: there are over a thousand, and more with each version.
"""

from __future__ import annotations

import builtins
import os
import re
import traceback
from pathlib import Path

import msgspec

from onyx.errors import FailsAgain, OnyxError, Unavailable, UserError, UserFunctionError
from onyx.spark.session.connect import is_lost

MESSAGE_CHARACTERS_MAX = 2_000
FRAMES_MAX = 4
OF_THE_JOB = frozenset(
    {"07", "0A", "21", "22", "23", "2B", "2F", "34", "38", "39", "3F", "42", "44", "46", "54", "56",
     "P0"}
)  # fmt: skip
"""Classes of SQLSTATE: data, names, syntax, limits, features, functions, and what a query raises by
itself. Others are of connections,
resources, the system, or internal."""
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_JAVA_OF_THE_JOB = re.compile(
    r"(?:^|: )(?:java\.lang\.)"
    r"(?:IllegalArgument|ClassNotFound|UnsupportedOperation|NumberFormat)Exception"
    r"|java\.lang\.NoClassDefFoundError",
    re.MULTILINE,
)
_LOST = re.compile(
    r"ExecutorLostFailure|FetchFailed|SparkContext was shut down|stopped SparkContext"
    r"|masters are unresp"
)
_GATEWAY = frozenset({"Py4JError", "Py4JNetworkError"})
"""Exceptions of a JVM that does not answer. What it has raised has another type."""
_TASK_FAILED = re.compile(r"Lost task [^\n]*?\(TID \d+\) \([^)\n]*\): ")
"""Between this and the stack of the JVM stands what a task has failed with."""
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)')
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(?P<module>[^'.]+)")
_OURS = (str(Path(__file__).parents[2]), f"{os.sep}pyspark", f"{os.sep}py4j", "<frozen ")


class Blame(msgspec.Struct, frozen=True):
    """The blame for one error."""

    message: str
    by_user: bool
    """The job, its functions or its data are wrong: another try would fail in the same way."""
    away: bool
    """What failed may be there again soon. False, and not by the user: nobody knows."""

    def error(self) -> OnyxError:
        """The blame as an exception, for who tries again (`plugins.attempts`)."""
        if self.by_user:
            return FailsAgain(self.message)
        return (Unavailable if self.away else UserFunctionError)(self.message)


def blame(error: BaseException, of_user: bool = False) -> Blame:
    """Whose fault an error is.

    Args:
        of_user: whether the user's code has raised it, if neither Spark nor Onyx has.
    """
    if isinstance(error, OnyxError):
        by_user = isinstance(error, UserError)
        return Blame(str(error), by_user and type(error) is not UserFunctionError, not by_user)
    message = failure_message(error)
    if not _is_of_spark(error):
        by_user = of_user and not isinstance(error, OSError | MemoryError)
        return Blame(
            message, by_user, not of_user and isinstance(error, ConnectionError | EOFError)
        )
    text = str(error)
    if is_lost(error) or type(error).__name__ in _GATEWAY or _LOST.search(text):
        return Blame(message, by_user=False, away=True)
    return Blame(message, _is_of_the_job(error, text), away=False)


def failure_message(error: BaseException) -> str:
    """An exception of a stage: type, message, and the frames in the user's own files."""
    text = str(error)
    if _is_of_spark(error) and _TRACEBACK in text:
        return _of_python(text)
    frames = [
        f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in _OURS)
    ]
    return shortened(f"{type(error).__name__}: {message_of_spark(error)}") + _told(frames)


def message_of_spark(error: BaseException) -> str:
    """The message without the JVM's own stack trace, which Spark appends, and without what Spark
    says of the task that has failed."""
    text = str(error).partition("\n\nJVM stacktrace")[0].partition("\n\tat ")[0]
    return (_TASK_FAILED.split(text)[-1]).strip()


def shortened(text: str) -> str:
    """At most `MESSAGE_CHARACTERS_MAX` characters: Spark's messages can fill pages. The end is
    kept rather than the middle, because that is where the exception of a UDF stands."""
    if len(text) <= MESSAGE_CHARACTERS_MAX:
        return text
    half = MESSAGE_CHARACTERS_MAX // 2
    return f"{text[:half]} ... {text[-half:]}"


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _is_of_the_job(error: BaseException, text: str) -> bool:
    if _TRACEBACK in text:
        return not _may_go_away(_raised(text))
    state = _state_of(error, text)
    if state:
        return state[:2] in OF_THE_JOB
    return _JAVA_OF_THE_JOB.search(text) is not None


def _state_of(error: BaseException, text: str) -> str:
    ask = getattr(error, "getSqlState", None)
    found = ask() if ask is not None else None
    if found:
        return str(found)
    match = _STATE.search(text)
    return match[1] if match else ""


def _may_go_away(raised: str) -> bool:
    """Whether an exception of Python, as the last line of its traceback, is one of files and
    connections, or of memory."""
    kind = getattr(builtins, raised.partition(":")[0].strip(), None)
    return isinstance(kind, type) and issubclass(kind, OSError | MemoryError)


def _of_python(text: str) -> str:
    """What a Python worker of Spark has raised."""
    traced = text[text.rindex(_TRACEBACK) :].partition("\n\nJVM stacktrace")[0]
    frames = [
        f"{found['file']}:{found['line']} in {found['name']}"
        for line in traced.splitlines()
        if (found := _FRAME.match(line)) and not any(part in found["file"] for part in _OURS)
    ]
    raised = _raised(text)
    return shortened(raised) + _hint(raised) + _told(frames)


def _raised(text: str) -> str:
    """Behind the last frame of the last traceback: type and message, perhaps of several lines."""
    traced = text[text.rindex(_TRACEBACK) :].partition("\n\tat ")[0]
    lines = traced.partition("\n\nJVM stacktrace")[0].splitlines()[1:]
    last = max((n for n, line in enumerate(lines) if line.startswith("  ")), default=-1)
    return "\n".join(lines[last + 1 :]).strip() or "an exception without a message"


def _hint(raised: str) -> str:
    found = _MISSING.match(raised)
    if found is None:
        return ""
    if found["module"] == "onyx":
        return (
            "; Spark's Python runs tasks of this job and has no Onyx: pip install "
            "'onyx-on-kubernetes[spark]' where executors, or the Connect server, run"
        )
    return (
        "; Spark's Python does not find it: install it where executors run, or give it to the "
        "worker (--modules), which sends it along"
    )


def _told(frames: list[str]) -> str:
    return "".join(f"\n  at {frame}" for frame in frames[-FRAMES_MAX:])
