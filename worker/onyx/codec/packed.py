"""Documents of the log as they are kept: compressed, and bounded for who reads them.

Manifests and lists shrink to a tenth. But few bytes must not become many for who reads them, so
a reader takes what becomes at most 1 MiB, or 64 times its bytes, and 256 MiB. What would shrink to
less is kept in stored blocks of the same format. It is zlib, which comes with Python: commands load
no Arrow.
"""

from __future__ import annotations

import zlib

from onyx.errors import UserError

BYTES_MAX = 268_435_456
RATIO_MAX = 64
ALWAYS_BYTES = 1_048_576
"""So much may come of however few bytes."""
LEVELS = (6, 0)
"""The second one does not compress."""


def pack(data: bytes) -> bytes:
    """A document as it is kept.

    Raises:
        UserError: it is larger than `BYTES_MAX`.
    """
    if len(data) > BYTES_MAX:
        raise UserError(
            f"a document is too large for the log's chunks: it has {len(data):,} bytes, and at "
            f"most {BYTES_MAX:,} are kept"
        )
    packed = (zlib.compress(data, level) for level in LEVELS)
    return next(each for each in packed if len(data) <= _limit(each))


def unpack(packed: bytes) -> bytes:
    """The document.

    Raises:
        ValueError: it is none, or would have too many bytes.
    """
    limit, reading = _limit(packed), zlib.decompressobj()
    try:
        data = reading.decompress(packed, limit + 1)
    except zlib.error as error:
        raise ValueError(f"it is not compressed as documents are: {error}") from None
    if len(data) > limit:
        raise ValueError(f"its {len(packed):,} bytes become more than {limit:,}")
    if not reading.eof or reading.unused_data:
        raise ValueError("it does not end where it should")
    return data


def _limit(packed: bytes) -> int:
    return min(BYTES_MAX, max(ALWAYS_BYTES, RATIO_MAX * len(packed)))
