"""Spools: segments that wait in a file until the worker writes them with the plugin of an output.

Batches one behind the other, each with its size in front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from onyx.codec.segments import decode, encode
from onyx.errors import SegmentError
from onyx.flow.segment import Segment

SIZE_BYTES = 8


class SpoolWriter:
    """A spool that is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("xb")

    def write(self, segments: Sequence[Segment]) -> None:
        """Add a batch."""
        payload = encode(segments)
        self._file.write(len(payload).to_bytes(SIZE_BYTES, "big"))
        self._file.write(payload)

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()


def read_spool(path: Path) -> Iterator[list[Segment]]:
    """The batches of a spool, in order.

    Raises:
        SegmentError: the file is damaged.
    """
    with path.open("rb") as file:
        while size := file.read(SIZE_BYTES):
            payload = file.read(int.from_bytes(size, "big"))
            if len(size) < SIZE_BYTES or len(payload) < int.from_bytes(size, "big"):
                raise SegmentError(f"{path} ends in the middle of a batch")
            yield decode(payload)
