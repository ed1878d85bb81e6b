"""The DataFrames that a stage gets, of parts or of nothing but a session, and that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.errors import FailsAgain, UserFunctionError
from onyx.spark.child.request import Frame, FrameSource, StageRequest
from onyx.spark.objects.frames import read_parts
from onyx.spark.session.blame import blame, message_of_spark

PARTS_NOT_SEEN = "PATH_NOT_FOUND"
"""What Spark calls files that are not there."""


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
