"""Questions about a state and their answers, as messages.

An answer is one document in pieces: a large state has a limit of its own, and not that of a
message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

import msgspec
from google.protobuf.message import DecodeError

from onyx.base.seams import Clock
from onyx.errors import SegmentError
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.requests.tokens import Tokens
from onyx.settings import Settings
from onyx.storage.opening import absolute
from onyx.wire.v1 import queries_pb2 as pb

ANSWER_BYTES_MAX = 16_777_216
"""Extents that one peer sends, encoded; a single state cannot be larger."""
EXTENTS_MAX = 1_000_000
"""Extents that may be asked for."""
PIECE_BYTES = 262_144
TABLE = ".table/"
"""Before the name of a table, which windows and states may have as well."""
MEASURES = ".measures"
"""In place of a state: what the group measures (`reports.measures`), as JSON; of one job, or of all
with an empty id. No peer is asked, and no allocation version is meant."""

DIAGNOSTICS = ".diagnostics"
"""Likewise: its last log lines, and all that it counts (`reports.measures.WorkerDiagnostics`)."""


def tokens_of_states(settings: Settings, clock: Clock) -> Tokens:
    """The tokens that open all states of a worker, over HTTP and over gRPC."""
    file = settings.state.token_file
    return Tokens(clock, absolute(file, settings.data_dir) if file else None)


class StateQuery(msgspec.Struct, frozen=True):
    """A question to one peer (`queries.proto` explains the fields)."""

    tenancy: str
    group: GroupId
    peer: PeerId
    job: JobId
    version: AllocationVersion
    state: str
    selection: bytes
    """Encoded by `codec/questions.py`."""
    extents_max: int
    durable: bool = False


class StateAnswer(msgspec.Struct, frozen=True):
    """Extents of one peer, encoded by `codec/questions.py`."""

    data: bytes
    more: bool


AnswerQuery = Callable[[StateQuery], Future[StateAnswer]]
"""Only enqueues. The future has a UserError when asking again is no use, Unavailable when it is."""


def encode_query(query: StateQuery) -> bytes:
    """The message of a question."""
    return pb.StateQuery(
        tenancy=query.tenancy,
        group=query.group,
        peer=query.peer,
        job=query.job,
        version=query.version,
        state=query.state,
        selection=query.selection,
        extents_max=query.extents_max,
        durable=query.durable,
    ).SerializeToString()


def decode_query(data: bytes) -> StateQuery:
    """Raises SegmentError when the bytes are no question, or one that asks for too much."""
    try:
        message = pb.StateQuery.FromString(data)
    except (DecodeError, ValueError) as error:
        raise SegmentError(f"{len(data)} bytes are no question about a state") from error
    if not 1 <= message.extents_max <= EXTENTS_MAX:
        raise SegmentError(
            f"{message.extents_max} extents were asked for; 1 to {EXTENTS_MAX} are possible"
        )
    return StateQuery(
        tenancy=message.tenancy,
        group=GroupId(message.group),
        peer=PeerId(message.peer),
        job=JobId(message.job),
        version=AllocationVersion(message.version),
        state=message.state,
        selection=message.selection,
        extents_max=message.extents_max,
        durable=message.durable,
    )


def to_pieces(answer: StateAnswer) -> Iterator[bytes]:
    """Messages that make up an answer, at least one."""
    for start in range(0, max(1, len(answer.data)), PIECE_BYTES):
        data = answer.data[start : start + PIECE_BYTES]
        yield pb.StatePiece(data=data, more=answer.more).SerializeToString()


def from_pieces(pieces: Iterable[bytes]) -> StateAnswer:
    """The answer that messages make up.

    Raises:
        SegmentError: they are no pieces of an answer, or too many.
    """
    data, more = bytearray(), False
    for each in pieces:
        try:
            piece = pb.StatePiece.FromString(each)
        except (DecodeError, ValueError) as error:
            raise SegmentError(f"{len(each)} bytes are no piece of an answer") from error
        data += piece.data
        more |= piece.more
        if len(data) > ANSWER_BYTES_MAX + PIECE_BYTES:
            raise SegmentError(f"an answer has more than {ANSWER_BYTES_MAX} bytes")
    return StateAnswer(bytes(data), more)
