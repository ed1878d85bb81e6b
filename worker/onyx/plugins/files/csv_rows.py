"""The records of a block of CSV, of which some are bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from onyx.flow.batch import Indices
from onyx.plugins.records import BOM

_ODD = (b'"', b"\0")
Row = tuple[list[str] | None, bytes]
"""The fields of a record, None if a quote is never closed, and its bytes."""


class Rows(msgspec.Struct, frozen=True):
    """The records of a block of which some are bad."""

    count: int
    record: Callable[[int], Row]
    sound: Sequence[int] | Indices
    """The rows that have as many fields as there are columns, all of them text."""
    texts: Sequence[pa.Array]
    """The texts of these the wanted columns."""
    used: int
    """Bytes."""


def is_odd(lines: bytes) -> bool:
    """Whether pyarrow may split a block otherwise than the csv module does."""
    odd = any(each in lines for each in _ODD) or lines.startswith(BOM)
    return odd or lines.count(b"\r") != lines.count(b"\r\n")


def is_text(raw: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
