from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class StateQuery(_message.Message):
    __slots__ = ("tenancy", "group", "peer", "job", "version", "window", "key", "extents_max")
    TENANCY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    EXTENTS_MAX_FIELD_NUMBER: _ClassVar[int]
    tenancy: str
    group: str
    peer: str
    job: str
    version: int
    window: str
    key: bytes
    extents_max: int
    def __init__(self, tenancy: _Optional[str] = ..., group: _Optional[str] = ..., peer: _Optional[str] = ..., job: _Optional[str] = ..., version: _Optional[int] = ..., window: _Optional[str] = ..., key: _Optional[bytes] = ..., extents_max: _Optional[int] = ...) -> None: ...

class StatePiece(_message.Message):
    __slots__ = ("data", "more")
    DATA_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    more: bool
    def __init__(self, data: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...
