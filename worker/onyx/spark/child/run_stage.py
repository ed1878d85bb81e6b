"""One run of a stage in the Spark child: read the parts, apply the function, write the result, and
say what went wrong in words for the person who wrote the stage."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from onyx.spark.child.failures import failure_of, said_of
from onyx.spark.child.frames import frame_of, given, result_of
from onyx.spark.child.protocol import StageFailure
from onyx.spark.child.query import queried
from onyx.spark.child.request import StageRequest
from onyx.spark.child.turn import Turn
from onyx.spark.child.writing import write
from onyx.spark.session.masters import is_local
from onyx.spark.session.shipping import ship
from onyx.user_code.resolve import Resolver


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
