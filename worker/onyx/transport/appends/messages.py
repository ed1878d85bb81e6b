"""Requests and their answers as messages (`requests.proto` explains the fields)."""

from __future__ import annotations

import msgspec
from google.protobuf.message import DecodeError

from onyx.codec.values import decode_returns, encode_returns
from onyx.errors import SegmentError
from onyx.ledger.outcomes import NOTHING, FailedSegment, Outcomes
from onyx.requests.request import (
    BATCH_MAX,
    ID_CHARACTERS_MAX,
    NOBODY,
    TIMEOUT_S,
    TIMEOUT_S_MAX,
    WRITE_CHARACTERS_MAX,
    WRITERS_MAX,
    Answer,
    Append,
    BatchOfWrite,
    Caller,
    Commit,
    Form,
    HeldRequest,
    Level,
    PartOfRequest,
    Payload,
    Status,
    WriterOfBatch,
)
from onyx.wire.v1 import requests_pb2 as pb

SERVICE = "onyx.wire.v1.Requests"
ONE, MANY = "Append", "AppendMany"
NAME_CHARACTERS_MAX = 512
_FORMS = {"json": Form.JSON_LINES, "arrow": Form.ARROW, "msgpack": Form.MSGPACK}
_FIELDS = {form: name for name, form in _FORMS.items()}
_LEVELS = {
    pb.ACK_LEVEL_ACK: Level.ACK,
    pb.ACK_LEVEL_JOURNAL: Level.JOURNAL,
    pb.ACK_LEVEL_NONE: Level.NONE,
}
_LEVEL_NUMBERS = {level: number for number, level in _LEVELS.items()}
_STATUS_NUMBERS = {
    Status.PROCESSED: pb.APPEND_STATUS_PROCESSED,
    Status.FAILED: pb.APPEND_STATUS_FAILED,
    Status.JOURNALLED: pb.APPEND_STATUS_JOURNALLED,
    Status.ACCEPTED: pb.APPEND_STATUS_ACCEPTED,
    Status.CONFLICT: pb.APPEND_STATUS_CONFLICT,
    Status.INVALID: pb.APPEND_STATUS_INVALID,
    Status.UNKNOWN: pb.APPEND_STATUS_UNKNOWN,
    Status.UNAUTHENTICATED: pb.APPEND_STATUS_UNAUTHENTICATED,
    Status.DENIED: pb.APPEND_STATUS_DENIED,
    Status.BUSY: pb.APPEND_STATUS_BUSY,
    Status.UNAVAILABLE: pb.APPEND_STATUS_UNAVAILABLE,
    Status.TIMED_OUT: pb.APPEND_STATUS_TIMED_OUT,
}
_COUNTS = ("failed", "dead_letters", "exceptions", "unmatched", "given_up")
_STATUSES = {number: status for status, number in _STATUS_NUMBERS.items()}


def encode_append(append: Append) -> bytes:
    """The message of a request."""
    message = pb.AppendRequest(
        tenancy=append.tenancy,
        job=append.job,
        task=append.task,
        id=append.id,
        ack=_LEVEL_NUMBERS[append.level],
        number=append.number,
        fresh=append.fresh,
        timeout_ms=max(1, round(append.timeout_s * 1_000)),
    )
    if not isinstance(append.write, Commit):
        setattr(message, _FIELDS[append.payload.form], append.payload.data)
    if append.part is not None:
        message.part.partition = append.part.partition
        message.part.digest = append.part.digest
        message.part.token = append.caller.token
    _encode_write(append.write, message)
    return message.SerializeToString()


def decode_append(data: bytes) -> Append:
    """Raises SegmentError when the bytes are no request, or one that cannot be meant."""
    try:
        message = pb.AppendRequest.FromString(data)
    except (DecodeError, ValueError) as error:
        raise SegmentError(f"{len(data)} bytes are no request") from error
    form = message.WhichOneof("segments")
    level = _LEVELS.get(message.ack)
    write = _write_of(message)
    if isinstance(write, Commit):
        form = form or "msgpack"
    if form is None or level is None:
        raise SegmentError("a request needs segments (json, arrow or msgpack) and a known ack")
    if len(message.id) > ID_CHARACTERS_MAX:
        raise SegmentError(
            f"the id of a request has {len(message.id)} characters; {ID_CHARACTERS_MAX} are allowed"
        )
    if max(map(len, (message.tenancy, message.job, message.task))) > NAME_CHARACTERS_MAX:
        raise SegmentError(f"names of a request have at most {NAME_CHARACTERS_MAX} characters")
    part, caller = None, NOBODY
    if message.HasField("part"):
        part = PartOfRequest(message.part.partition, message.part.digest)
        caller = Caller(message.part.token)
    return Append(
        job=message.job,
        task=message.task,
        payload=Payload(_FORMS[form], getattr(message, form)),
        id=message.id,
        fresh=message.fresh,
        level=level,
        timeout_s=min(message.timeout_ms / 1_000, TIMEOUT_S_MAX) or TIMEOUT_S,
        tenancy=message.tenancy,
        number=message.number,
        part=part,
        write=write,
        caller=caller,
    )


def _encode_write(write: HeldRequest | Commit | None, message: pb.AppendRequest) -> None:
    if isinstance(write, HeldRequest):
        held = message.held
        held.write, held.batch = write.batch
        held.writer, held.number = write.writer, write.number
    elif write is not None:
        message.commit.write, message.commit.batch = write.batch
        for name, requests in write.writers:
            message.commit.writers.add(name=name, requests=requests)


def _write_of(message: pb.AppendRequest) -> HeldRequest | Commit | None:
    """Raises SegmentError: it cannot be meant."""
    if message.HasField("held"):
        held = message.held
        return HeldRequest(_batch_of(held.write, held.batch), held.writer, held.number)
    if not message.HasField("commit"):
        return None
    commit = message.commit
    if len(commit.writers) > WRITERS_MAX:
        raise SegmentError(f"a commit names at most {WRITERS_MAX:,} writers")
    writers = tuple(WriterOfBatch(each.name, each.requests) for each in commit.writers)
    return Commit(_batch_of(commit.write, commit.batch), writers)


def _batch_of(write: str, batch: int) -> BatchOfWrite:
    if not 0 < len(write) <= WRITE_CHARACTERS_MAX or batch > BATCH_MAX:
        raise SegmentError(
            f"the id of a write has 1 to {WRITE_CHARACTERS_MAX} characters, and its batch a number "
            f"up to {BATCH_MAX}"
        )
    return BatchOfWrite(write, batch)


def encode_answer(answer: Answer, number: int) -> bytes:
    """The message of an answer."""
    message = pb.AppendAnswer(
        number=number,
        status=_STATUS_NUMBERS[answer.status],
        reason=answer.reason,
        retry_after_ms=round((answer.retry_after_s or 0.0) * 1_000),
        segments=answer.segments,
        refused=answer.refused,
        errors=answer.errors,
        values_lost=answer.values_lost,
        owner=answer.owner,
        parts=encode_returns({0: dict(answer.parts)}) if answer.parts else b"",
    )
    for key, value in answer.values.items():
        message.values[key] = msgspec.json.encode(value).decode()
    if answer.outcomes != NOTHING:
        message.outcomes.CopyFrom(_encode_outcomes(answer.outcomes))
    return message.SerializeToString()


def decode_answer(data: bytes) -> tuple[int, Answer]:
    """The number of a request and its answer. Raises SegmentError when the bytes are no answer."""
    try:
        message = pb.AppendAnswer.FromString(data)
        values = {key: msgspec.json.decode(text) for key, text in sorted(message.values.items())}
        parts = decode_returns(message.parts)[0] if message.parts else {}
    except (DecodeError, ValueError, KeyError) as error:
        raise SegmentError(f"{len(data)} bytes are no answer to a request") from error
    status = _STATUSES.get(message.status)
    if status is None:
        raise SegmentError(f"an answer has the status {message.status}, which is not known")
    return message.number, Answer(
        status,
        message.reason,
        message.retry_after_ms / 1_000 or None,
        message.segments,
        values,
        parts,
        message.values_lost,
        dict(message.errors),
        dict(message.refused),
        _outcomes_of(message.outcomes) if message.HasField("outcomes") else NOTHING,
        message.owner,
    )


def _encode_outcomes(outcomes: Outcomes) -> pb.AppendOutcomes:
    message = pb.AppendOutcomes(
        **{name: getattr(outcomes, name) for name in _COUNTS}, first_error=outcomes.first_error
    )
    for task, error, segment in outcomes.failures:
        message.failures.add(task=task, error=error, segment=segment)
    return message


def _outcomes_of(message: pb.AppendOutcomes) -> Outcomes:
    failures = tuple(
        FailedSegment(each.task, each.error, each.segment if each.HasField("segment") else None)
        for each in message.failures
    )
    counts = {name: getattr(message, name) for name in _COUNTS}
    return Outcomes(**counts, first_error=message.first_error, failures=failures)
