"""How far a log of chunks has come, said outside of its chunks: one small file beside the log.

A chunk that is missing between others leaves a gap. The last one leaves none: whoever reads the log
would take the chunk before for its end, and go on without what was promised. So the writer of a log
notes the number of each chunk that is durable, before anybody hears of it. The file is there before
the first chunk of the log is, so a log without it has lost it.

The note may be behind (`BlobStore.note`), and is never ahead.
"""

from __future__ import annotations

from onyx.errors import StateError
from onyx.storage.interface import BlobStore
from onyx.structs import RESTORE, UNREADABLE

SUFFIX = ".end"
"""Behind the name of the log."""
_DIGITS = 12


def begin(store: BlobStore, name: str) -> None:
    """There is going to be a log. Raises as everything of the store."""
    store.create(name, _text(0))


def reach(store: BlobStore, name: str, seq: int) -> None:
    """The chunk of this number is durable. Raises as everything of the store."""
    store.note(name, _text(seq))


def reached(store: BlobStore, name: str) -> int | None:
    """The number of a chunk that was durable, and none before it was; None: nothing was noted.

    Raises:
        StateError: the file holds something else.
        Unavailable, UserError: as everything of the store.
    """
    data = store.read(name)
    try:
        return None if data is None else int(data)
    except UNREADABLE as error:
        raise StateError(f"{name} holds no number of a chunk ({error}); {RESTORE}") from error


def _text(seq: int) -> bytes:
    return b"%0*d" % (_DIGITS, seq)
