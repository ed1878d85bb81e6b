"""Segments as JSON lines: one call of the encoder for a batch, and errors that name the key.

JSON has neither NaN nor infinities, and the encoder writes null for them. So only a batch whose
encoding contains a null is searched for floats that are not finite. They are refused unless the job
says what to write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from onyx.codec.kinds import levels
from onyx.errors import UserError
from onyx.flow.segment import Segment
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext

T = TypeVar("T", bytes, list[bytes])
_encoder = msgspec.json.Encoder()


Nan = Literal["error", "null", "text"]
"""What is written for NaN and the infinities."""
_TEXTS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class JsonLines:
    """The encoder of one output task."""

    def __init__(self, context: PluginContext, nan: Nan = "error") -> None:
        """`nan`: `error` refuses what is not finite, `null` and `text` (`"NaN"`, `"Infinity"`,
        `"-Infinity"`) write that."""
        self._context = context
        self._nan = nan

    def encode(self, segments: Sequence[Segment]) -> bytes:
        """A line for every segment, each ended by a newline.

        Raises:
            UserError: a value has no JSON form; its key is named.
        """
        return self._encoded(_encoder.encode_lines, segments)

    def encode_each(self, segments: Sequence[Segment]) -> list[bytes]:
        """The same, each without a newline."""
        return self._encoded(_encode_each, segments)

    def _encoded(self, encode: Callable[[Sequence[Segment]], T], segments: Sequence[Segment]) -> T:
        try:
            encoded = encode(segments)
            if self._nan == "null" or not _has_null(encoded) or not _any_odd(segments):
                return encoded
            if self._nan == "error":
                raise self._not_finite(segments)
            return encode([_with_texts(each) for each in segments])
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._explained(segments, error) from error

    def _not_finite(self, segments: Sequence[Segment]) -> UserError:
        key = next(key for each in segments for key, value in each.items() if _any_odd([value]))
        return task_error(
            self._context,
            f"key {key!r} holds NaN or an infinity, which JSON lacks: set option nan to null or "
            "text to have that written instead, or replace it in the function before",
        )

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


def _encode_each(segments: Sequence[Segment]) -> list[bytes]:
    return list(map(_encoder.encode, segments))


def _has_null(encoded: bytes | list[bytes]) -> bool:
    if isinstance(encoded, bytes):
        return b"null" in encoded
    return any(b"null" in each for each in encoded)


def _any_odd(values: Sequence[Any]) -> bool:
    """Whether a float in them is not finite."""
    return any(
        not math.isfinite(each)
        for level in levels(values)
        if float in level.kinds
        for each in level.values
        if type(each) is float
    )


def _with_texts(value: Any) -> Any:
    if type(value) is float:
        return value if math.isfinite(value) else _TEXTS[str(value)]
    if isinstance(value, dict):
        return {key: _with_texts(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(each) for each in value]
    return value
