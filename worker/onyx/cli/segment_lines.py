"""Segments that somebody gives to a command: JSON objects, one a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.errors import UserError
from onyx.flow.segment import Segment

_decoder = msgspec.json.Decoder(dict[str, Any])


def read_batches(file: Path | None, batch: int) -> Iterator[list[Segment]]:
    """The segments of a file, or of standard input, so many at a time.

    Raises:
        UserError: it cannot be read, or a line is no JSON object.
    """
    if file is None:
        yield from _read(sys.stdin.buffer, "standard input", batch)
        return
    try:
        with file.open("rb") as opened:
            yield from _read(opened, str(file), batch)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from error


def read_segment(text: bytes, where: str) -> Segment:
    """One segment. Raises as `read_batches`."""
    try:
        return _decoder.decode(text)
    except UNREADABLE as error:
        raise UserError(f"{where} is no JSON object: {error}") from error


def _read(lines: BinaryIO, name: str, batch: int) -> Iterator[list[Segment]]:
    numbered = enumerate(lines, 1)
    found = (
        read_segment(line, f"{name}, line {number}") for number, line in numbered if line.strip()
    )
    while segments := list(islice(found, batch)):
        yield segments
