"""DataFrames that are made from nothing but a session, as the input `spark` takes snapshots of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.spark.child.request import FrameSource


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
