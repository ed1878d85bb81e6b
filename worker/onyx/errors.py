"""Every exception that Onyx raises, split by who must act.

    OnyxError
     +- UserError                 the person who wrote the job or called the API
     |   +- ManifestError         a job file is wrong: carries every problem, each with its path
     |   +- NameNotRegistered     `package.module:name` does not resolve to a registered function
     |   +- UserFunctionError     a user's function raised; the original is the cause
     |   |   +- FailsAgain        and it would again: what is wrong is the job, or its data
     |   +- PoisonSegment         processes died over a segment, which is not tried any more
     |   +- SettingsError         a setting of a worker or client is wrong
     |   +- SegmentError          a segment cannot travel: a value, its size, or corrupt bytes
     |   +- OutputFailed          an output cannot make durable what it had taken
     |   +- StateError            durable state of a task is damaged, missing or another's
     |   +- LogReplaced           the log is not the one that this process knew: ZooKeeper was wiped
     +- Unavailable               try again later: ZooKeeper, a peer or a file cannot be reached now
     |   +- Blocked               somebody has to free space, or restore what was moved away
     +- Fenced                    this incarnation was declared dead; only a new one may act
     +- WorkLost                  unpublished work of a task is lost; its segments are replayed
     +- OutOfMemory               the kernel kills processes of this worker again and again
     +- JobRefused                the cluster cannot take the job (its id is taken, for example)
     +- InvariantViolated         a bug in Onyx: please report it

Exceptions of libraries never cross a layer: they are raised again as one of these with `from`.
Messages say which job, task and key, what was wrong, and what to do.

The user's code may raise anything. `SystemExit` and its like pass `except Exception` and end a
thread; wherever Onyx calls the user's code it catches BaseException and goes on with `contained`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

__all__ = [
    "Blocked",
    "FailsAgain",
    "Fenced",
    "InvariantViolated",
    "JobRefused",
    "LogReplaced",
    "ManifestError",
    "NameNotRegistered",
    "OnyxError",
    "OutOfMemory",
    "OutputFailed",
    "PoisonSegment",
    "Problem",
    "SegmentError",
    "SettingsError",
    "StateError",
    "Unavailable",
    "UserError",
    "UserFunctionError",
    "WorkLost",
]
"""Public names; the functions below are for Onyx itself."""

DESCRIPTION_CHARACTERS_MAX = 2_000
"""The length of what an exception of the user's says of itself, and of a problem."""
WORD_CHARACTERS_MAX = 200
_LONG_WORD = re.compile(rf"\S{{{WORD_CHARACTERS_MAX + 1},}}")


class OnyxError(Exception):
    """Root of all errors that Onyx raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows of it: the message is for the person, the rest is for us."""
        return f"error: {brief(str(self))}".split("\n")


class UserError(OnyxError):
    """A mistake that the person who wrote the job or called the API can correct."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a manifest."""

    path: str
    """Where, as written by the user: `spec.catalog[2].batchSize`."""
    message: str
    """What is wrong and what was expected, in one sentence."""
    hint: str = ""
    """What to do: the nearest known key, the key to add. Empty when the message says it all."""
    where: str = ""
    """`file:line` when the manifest was read from text."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", brief(self.message))
        msgspec.structs.force_setattr(self, "hint", brief(self.hint))

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.path}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class ManifestError(UserError):
    """A job is not valid. `problems` lists everything that is wrong, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NameNotRegistered(UserError):
    """A `package.module:name` is not a function of a module that the worker was started with."""


class UserFunctionError(UserError):
    """A function of the user raised. The original exception is the `__cause__`."""


class FailsAgain(UserFunctionError):
    """What has failed would fail again, however often it is tried: the job or its data are wrong.
    Others than this class may be tried again a few times, where a run is costly and its executors
    may be lost (`plugins.attempts`)."""


class PoisonSegment(UserError):
    """A segment that is not tried any more, because processes have died over it."""


class SettingsError(UserError):
    """A setting of a worker, a client or the environment is wrong."""


class SegmentError(UserError):
    """A segment cannot travel between processes: it holds a value that has no encoding, it is too
    large or nested too deeply, or the bytes that came are not segments."""


class OutputFailed(UserError):
    """What an output had taken cannot be made durable, or the output cannot be used: no segment
    that is written now is to blame."""


class StateError(UserError):
    """The durable state of a task is damaged, missing or another task's. To continue without it
    would give wrong results, so the job's owner must restore it or start from the beginning."""


class LogReplaced(UserError):
    """The log of the cluster is not the one that this process followed, so its replica is void.
    The cluster's operator must decide whether ZooKeeper's data can be restored."""


class Unavailable(OnyxError):
    """A server, peer or file cannot be reached now; the same call may succeed later."""


class Blocked(Unavailable):
    """Nothing can be done until somebody frees space, or restores what was moved away. Callers wait
    for that without a limit."""


class WorkLost(OnyxError):
    """Unpublished work of a task is lost. The task starts again, and segments that were not
    acknowledged are replayed."""


class Fenced(OnyxError):
    """This incarnation has been declared dead. It must stop and may start again as a new one."""


class OutOfMemory(OnyxError):
    """Processes are killed for want of memory again and again. Starting them again does not help:
    they need more memory, or less to do."""


class JobRefused(OnyxError):
    """The cluster does not take the job: its id is taken by other content, its workers cannot
    continue the job that it upgrades, or its percentage has no effect there."""


class InvariantViolated(OnyxError):
    """A bug in Onyx, never the user's fault. Please report it with the message."""

    @property
    def _render_traceback_(self) -> Any:
        """A notebook shows where it is: to it there is no such method."""
        raise AttributeError("_render_traceback_")


def brief(text: str) -> str:
    """A text for people, in which no name of 100,000 characters stands."""
    if len(text) > WORD_CHARACTERS_MAX:
        text = _LONG_WORD.sub(lambda word: f"{word[0][:57]}...", text)
    return text if len(text) <= DESCRIPTION_CHARACTERS_MAX else _cut(text)


def _cut(text: str) -> str:
    return f"{text[:DESCRIPTION_CHARACTERS_MAX]}... ({len(text):,} characters)"


def message_of(error: BaseException) -> str:
    """The message of an exception, shortened. Its `__str__` may raise, or return megabytes."""
    try:
        text = str(error)
    except BaseException as again:
        return f"(no message: its __str__ raised {type(again).__name__})"
    return text if len(text) <= DESCRIPTION_CHARACTERS_MAX else _cut(text)


def describe(error: BaseException) -> str:
    """An error in one line; for errors of others than Onyx with the name of their type."""
    text = message_of(error)
    if isinstance(error, OnyxError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_type(value: Any) -> str:
    """The type only: what is in a segment does not belong in a log."""
    kind = type(value)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def contained(error: BaseException, who: str = "") -> Exception:
    """An exception of the user's code as one that ends a job and never a thread.

    Args:
        error: an Exception is returned as it is.
        who: raised it; empty where the caller adds that.
    """
    if isinstance(error, Exception):
        return error
    begin = f"{who} raised" if who else "raised"
    made = UserFunctionError(
        f"{begin} {describe(error)}, which means to end the process; it ends the job only: raise a "
        "subclass of Exception instead"
    )
    made.__cause__ = error
    return made.with_traceback(error.__traceback__)
