from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class StateQuery(_message.Message):
    __slots__ = ("tenancy", "group", "peer", "job", "version", "state", "selection", "extents_max", "durable")
    TENANCY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    EXTENTS_MAX_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    tenancy: str
    group: str
    peer: str
    job: str
    version: int
    state: str
    selection: bytes
    extents_max: int
    durable: bool
    def __init__(self, tenancy: _Optional[str] = ..., group: _Optional[str] = ..., peer: _Optional[str] = ..., job: _Optional[str] = ..., version: _Optional[int] = ..., state: _Optional[str] = ..., selection: _Optional[bytes] = ..., extents_max: _Optional[int] = ..., durable: _Optional[bool] = ...) -> None: ...

class StatePiece(_message.Message):
    __slots__ = ("data", "more")
    DATA_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    more: bool
    def __init__(self, data: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...
