"""Segments as JSON lines: one call of the encoder a batch, and an error that names the key."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onyx.errors import UserError
from onyx.flow.batch import Segment
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext

_encoder = msgspec.json.Encoder()


class JsonLines:
    """The encoder of one output task."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context

    def encode(self, segments: Sequence[Segment]) -> bytes:
        """A line for every segment, each ended by a newline.

        Raises:
            UserError: a value has no JSON form; its key is named.
        """
        try:
            return _encoder.encode_lines(segments)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._explained(segments, error) from error

    def _explained(self, segments: Sequence[Segment], error: Exception) -> UserError:
        for segment in segments:
            for key, value in segment.items():
                try:
                    _encoder.encode({key: value})
                except (TypeError, ValueError, OverflowError, RecursionError) as refused:
                    return task_error(
                        self._context,
                        f"key {key!r} holds a {type(value).__name__} that JSON cannot ({refused});"
                        " convert it in the function before",
                    )
        return task_error(self._context, f"a batch cannot be written as JSON: {error}")
