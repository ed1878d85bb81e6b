"""The checksum of a frame: CRC-32, of the frame itself or of sums that stand for it.

TCP's own 16 bits let one damaged packet in some millions pass, and a changed number in a segment
would go unnoticed. CRC-32 of a frame of 490 kB takes 130 to 230 us at each end. So a large frame is
folded first: it is rows of 1,151 words of 64 bits, and what is checked is the sum of each column of
words, what is left behind the last row, and the length. That takes 30 us.

A packet of a network has at most 9,000 bytes, and a row 9,208. So damage within one packet changes
each column at most once, and thereby its sum, wherever it is and whatever the packet's own checksum
lets pass, such as words that change places. Damage in several packets goes unnoticed only if the
changes of a column cancel each other out in 64 bits, or those of CRC-32 in 32.

Rejected: xxHash and CRC-32C by the processor, which take as long as the sums: one more dependency
of all workers. One sum of all words: it lets words change places.
"""

from __future__ import annotations

import zlib

import numpy as np

CHECKSUM_BYTES = 5
"""Its field in a frame, with the tag."""
CHECKSUM_TAG = bytes([(15 << 3) | 5])
"""The tag of `Frame.checksum`: field 15, four bytes of fixed length (wire type 5)."""
ROW_WORDS = 1_151
"""A prime, so that columns are not those of any table in a segment."""
ROW_BYTES = 8 * ROW_WORDS
FOLDED_FROM_BYTES = 4 * ROW_BYTES
"""Smaller frames are faster without."""


def checksum(body: bytes | memoryview) -> bytes:
    """Four bytes for all bytes of a frame before them."""
    size = len(body)
    if size < FOLDED_FROM_BYTES:
        return zlib.crc32(body).to_bytes(4, "little")
    rows = size // ROW_BYTES
    words = np.frombuffer(body, "<u8", rows * ROW_WORDS).reshape(rows, ROW_WORDS)
    columns = np.add.reduce(words, axis=0).astype("<u8", copy=False)
    found = zlib.crc32(columns.tobytes(), size)
    found = zlib.crc32(memoryview(body)[rows * ROW_BYTES :], found)
    return found.to_bytes(4, "little")
