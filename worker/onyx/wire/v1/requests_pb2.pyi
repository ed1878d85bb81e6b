from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AckLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK_LEVEL_ACK: _ClassVar[AckLevel]
    ACK_LEVEL_JOURNAL: _ClassVar[AckLevel]
    ACK_LEVEL_NONE: _ClassVar[AckLevel]

class AppendStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPEND_STATUS_UNSPECIFIED: _ClassVar[AppendStatus]
    APPEND_STATUS_PROCESSED: _ClassVar[AppendStatus]
    APPEND_STATUS_JOURNALLED: _ClassVar[AppendStatus]
    APPEND_STATUS_ACCEPTED: _ClassVar[AppendStatus]
    APPEND_STATUS_CONFLICT: _ClassVar[AppendStatus]
    APPEND_STATUS_INVALID: _ClassVar[AppendStatus]
    APPEND_STATUS_UNKNOWN: _ClassVar[AppendStatus]
    APPEND_STATUS_UNAUTHENTICATED: _ClassVar[AppendStatus]
    APPEND_STATUS_DENIED: _ClassVar[AppendStatus]
    APPEND_STATUS_BUSY: _ClassVar[AppendStatus]
    APPEND_STATUS_UNAVAILABLE: _ClassVar[AppendStatus]
    APPEND_STATUS_TIMED_OUT: _ClassVar[AppendStatus]
    APPEND_STATUS_FAILED: _ClassVar[AppendStatus]
ACK_LEVEL_ACK: AckLevel
ACK_LEVEL_JOURNAL: AckLevel
ACK_LEVEL_NONE: AckLevel
APPEND_STATUS_UNSPECIFIED: AppendStatus
APPEND_STATUS_PROCESSED: AppendStatus
APPEND_STATUS_JOURNALLED: AppendStatus
APPEND_STATUS_ACCEPTED: AppendStatus
APPEND_STATUS_CONFLICT: AppendStatus
APPEND_STATUS_INVALID: AppendStatus
APPEND_STATUS_UNKNOWN: AppendStatus
APPEND_STATUS_UNAUTHENTICATED: AppendStatus
APPEND_STATUS_DENIED: AppendStatus
APPEND_STATUS_BUSY: AppendStatus
APPEND_STATUS_UNAVAILABLE: AppendStatus
APPEND_STATUS_TIMED_OUT: AppendStatus
APPEND_STATUS_FAILED: AppendStatus

class AppendRequest(_message.Message):
    __slots__ = ("tenancy", "job", "task", "id", "ack", "json", "arrow", "msgpack", "number", "timeout_ms", "part", "held", "commit", "fresh")
    TENANCY_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    MSGPACK_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    tenancy: str
    job: str
    task: str
    id: str
    ack: AckLevel
    json: bytes
    arrow: bytes
    msgpack: bytes
    number: int
    timeout_ms: int
    part: RequestPart
    held: HeldRequest
    commit: CommitRequest
    fresh: bool
    def __init__(self, tenancy: _Optional[str] = ..., job: _Optional[str] = ..., task: _Optional[str] = ..., id: _Optional[str] = ..., ack: _Optional[_Union[AckLevel, str]] = ..., json: _Optional[bytes] = ..., arrow: _Optional[bytes] = ..., msgpack: _Optional[bytes] = ..., number: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., part: _Optional[_Union[RequestPart, _Mapping]] = ..., held: _Optional[_Union[HeldRequest, _Mapping]] = ..., commit: _Optional[_Union[CommitRequest, _Mapping]] = ..., fresh: _Optional[bool] = ...) -> None: ...

class HeldRequest(_message.Message):
    __slots__ = ("write", "batch", "writer", "number")
    WRITE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    write: str
    batch: int
    writer: str
    number: int
    def __init__(self, write: _Optional[str] = ..., batch: _Optional[int] = ..., writer: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("write", "batch", "writers")
    WRITE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    write: str
    batch: int
    writers: _containers.RepeatedCompositeFieldContainer[CommittedWriter]
    def __init__(self, write: _Optional[str] = ..., batch: _Optional[int] = ..., writers: _Optional[_Iterable[_Union[CommittedWriter, _Mapping]]] = ...) -> None: ...

class CommittedWriter(_message.Message):
    __slots__ = ("name", "requests")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    requests: int
    def __init__(self, name: _Optional[str] = ..., requests: _Optional[int] = ...) -> None: ...

class RequestPart(_message.Message):
    __slots__ = ("partition", "digest", "token")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    partition: int
    digest: bytes
    token: bytes
    def __init__(self, partition: _Optional[int] = ..., digest: _Optional[bytes] = ..., token: _Optional[bytes] = ...) -> None: ...

class AppendOutcomes(_message.Message):
    __slots__ = ("failed", "dead_letters", "exceptions", "unmatched", "given_up", "first_error", "failures")
    FAILED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    UNMATCHED_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    FIRST_ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    failed: int
    dead_letters: int
    exceptions: int
    unmatched: int
    given_up: int
    first_error: str
    failures: _containers.RepeatedCompositeFieldContainer[FailedSegment]
    def __init__(self, failed: _Optional[int] = ..., dead_letters: _Optional[int] = ..., exceptions: _Optional[int] = ..., unmatched: _Optional[int] = ..., given_up: _Optional[int] = ..., first_error: _Optional[str] = ..., failures: _Optional[_Iterable[_Union[FailedSegment, _Mapping]]] = ...) -> None: ...

class FailedSegment(_message.Message):
    __slots__ = ("task", "error", "segment")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    task: str
    error: str
    segment: int
    def __init__(self, task: _Optional[str] = ..., error: _Optional[str] = ..., segment: _Optional[int] = ...) -> None: ...

class AppendAnswer(_message.Message):
    __slots__ = ("number", "status", "reason", "retry_after_ms", "segments", "values", "errors", "parts", "values_lost", "refused", "owner", "outcomes")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    VALUES_LOST_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    number: int
    status: AppendStatus
    reason: str
    retry_after_ms: int
    segments: int
    values: _containers.ScalarMap[str, str]
    errors: _containers.ScalarMap[str, str]
    parts: bytes
    values_lost: bool
    refused: _containers.ScalarMap[int, str]
    owner: str
    outcomes: AppendOutcomes
    def __init__(self, number: _Optional[int] = ..., status: _Optional[_Union[AppendStatus, str]] = ..., reason: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., segments: _Optional[int] = ..., values: _Optional[_Mapping[str, str]] = ..., errors: _Optional[_Mapping[str, str]] = ..., parts: _Optional[bytes] = ..., values_lost: _Optional[bool] = ..., refused: _Optional[_Mapping[int, str]] = ..., owner: _Optional[str] = ..., outcomes: _Optional[_Union[AppendOutcomes, _Mapping]] = ...) -> None: ...
