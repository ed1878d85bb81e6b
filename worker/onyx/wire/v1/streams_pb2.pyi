from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Codec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CODEC_UNSPECIFIED: _ClassVar[Codec]
    CODEC_LZ4: _ClassVar[Codec]
    CODEC_ZSTD: _ClassVar[Codec]

class ControlKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTROL_KIND_UNSPECIFIED: _ClassVar[ControlKind]
    CONTROL_KIND_FLUSH: _ClassVar[ControlKind]
    CONTROL_KIND_END: _ClassVar[ControlKind]
    CONTROL_KIND_WATERMARK: _ClassVar[ControlKind]
    CONTROL_KIND_EPOCH: _ClassVar[ControlKind]
CODEC_UNSPECIFIED: Codec
CODEC_LZ4: Codec
CODEC_ZSTD: Codec
CONTROL_KIND_UNSPECIFIED: ControlKind
CONTROL_KIND_FLUSH: ControlKind
CONTROL_KIND_END: ControlKind
CONTROL_KIND_WATERMARK: ControlKind
CONTROL_KIND_EPOCH: ControlKind

class Frame(_message.Message):
    __slots__ = ("hello", "first", "received", "packets", "compressed", "checksum")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    first: int
    received: int
    packets: _containers.RepeatedCompositeFieldContainer[Packet]
    compressed: Compressed
    checksum: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., first: _Optional[int] = ..., received: _Optional[int] = ..., packets: _Optional[_Iterable[_Union[Packet, _Mapping]]] = ..., compressed: _Optional[_Union[Compressed, _Mapping]] = ..., checksum: _Optional[int] = ...) -> None: ...

class Compressed(_message.Message):
    __slots__ = ("codec", "frame_bytes", "data")
    CODEC_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    codec: Codec
    frame_bytes: int
    data: bytes
    def __init__(self, codec: _Optional[_Union[Codec, str]] = ..., frame_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "tenancy", "group", "target", "link", "session", "heard_session", "received", "link_bytes_max", "machine", "codecs")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TENANCY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HEARD_SESSION_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    LINK_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    CODECS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    tenancy: str
    group: str
    target: str
    link: int
    session: int
    heard_session: int
    received: int
    link_bytes_max: int
    machine: int
    codecs: _containers.RepeatedScalarFieldContainer[Codec]
    def __init__(self, protocol: _Optional[int] = ..., tenancy: _Optional[str] = ..., group: _Optional[str] = ..., target: _Optional[str] = ..., link: _Optional[int] = ..., session: _Optional[int] = ..., heard_session: _Optional[int] = ..., received: _Optional[int] = ..., link_bytes_max: _Optional[int] = ..., machine: _Optional[int] = ..., codecs: _Optional[_Iterable[_Union[Codec, str]]] = ...) -> None: ...

class Packet(_message.Message):
    __slots__ = ("open", "close", "data", "control", "credit", "acks", "completions", "schema", "held", "returns", "look_up", "found")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    LOOK_UP_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    open: OpenChannel
    close: CloseChannel
    data: Data
    control: Control
    credit: Credit
    acks: Acks
    completions: Completions
    schema: Schema
    held: Held
    returns: Returns
    look_up: LookUp
    found: Found
    def __init__(self, open: _Optional[_Union[OpenChannel, _Mapping]] = ..., close: _Optional[_Union[CloseChannel, _Mapping]] = ..., data: _Optional[_Union[Data, _Mapping]] = ..., control: _Optional[_Union[Control, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., acks: _Optional[_Union[Acks, _Mapping]] = ..., completions: _Optional[_Union[Completions, _Mapping]] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., returns: _Optional[_Union[Returns, _Mapping]] = ..., look_up: _Optional[_Union[LookUp, _Mapping]] = ..., found: _Optional[_Union[Found, _Mapping]] = ...) -> None: ...

class OpenChannel(_message.Message):
    __slots__ = ("channel", "job", "version", "source", "target")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    channel: int
    job: str
    version: int
    source: str
    target: str
    def __init__(self, channel: _Optional[int] = ..., job: _Optional[str] = ..., version: _Optional[int] = ..., source: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class CloseChannel(_message.Message):
    __slots__ = ("channel",)
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    channel: int
    def __init__(self, channel: _Optional[int] = ...) -> None: ...

class Schema(_message.Message):
    __slots__ = ("channel", "schema")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    channel: int
    schema: bytes
    def __init__(self, channel: _Optional[int] = ..., schema: _Optional[bytes] = ...) -> None: ...

class Data(_message.Message):
    __slots__ = ("channel", "sequence", "segments", "payload", "columns", "states", "laps", "roots", "ids")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    LAPS_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    channel: int
    sequence: int
    segments: int
    payload: bytes
    columns: bytes
    states: bytes
    laps: bytes
    roots: bytes
    ids: bytes
    def __init__(self, channel: _Optional[int] = ..., sequence: _Optional[int] = ..., segments: _Optional[int] = ..., payload: _Optional[bytes] = ..., columns: _Optional[bytes] = ..., states: _Optional[bytes] = ..., laps: _Optional[bytes] = ..., roots: _Optional[bytes] = ..., ids: _Optional[bytes] = ...) -> None: ...

class Control(_message.Message):
    __slots__ = ("channel", "sequence", "kind", "root", "id", "time_ms", "lull", "epoch", "partitions", "frontiers")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LULL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FRONTIERS_FIELD_NUMBER: _ClassVar[int]
    channel: int
    sequence: int
    kind: ControlKind
    root: int
    id: int
    time_ms: int
    lull: bool
    epoch: int
    partitions: _containers.RepeatedScalarFieldContainer[int]
    frontiers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, channel: _Optional[int] = ..., sequence: _Optional[int] = ..., kind: _Optional[_Union[ControlKind, str]] = ..., root: _Optional[int] = ..., id: _Optional[int] = ..., time_ms: _Optional[int] = ..., lull: _Optional[bool] = ..., epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[int]] = ..., frontiers: _Optional[_Iterable[int]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("channel", "taken", "window", "hungry")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    HUNGRY_FIELD_NUMBER: _ClassVar[int]
    channel: int
    taken: int
    window: int
    hungry: bool
    def __init__(self, channel: _Optional[int] = ..., taken: _Optional[int] = ..., window: _Optional[int] = ..., hungry: _Optional[bool] = ...) -> None: ...

class Acks(_message.Message):
    __slots__ = ("job", "version", "acker", "roots", "values", "count")
    JOB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ACKER_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    job: str
    version: int
    acker: str
    roots: bytes
    values: bytes
    count: int
    def __init__(self, job: _Optional[str] = ..., version: _Optional[int] = ..., acker: _Optional[str] = ..., roots: _Optional[bytes] = ..., values: _Optional[bytes] = ..., count: _Optional[int] = ...) -> None: ...

class Completions(_message.Message):
    __slots__ = ("job", "version", "target", "roots", "retries_max", "count")
    JOB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_MAX_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    job: str
    version: int
    target: str
    roots: bytes
    retries_max: int
    count: int
    def __init__(self, job: _Optional[str] = ..., version: _Optional[int] = ..., target: _Optional[str] = ..., roots: _Optional[bytes] = ..., retries_max: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("job", "version", "target", "roots", "count")
    JOB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    job: str
    version: int
    target: str
    roots: bytes
    count: int
    def __init__(self, job: _Optional[str] = ..., version: _Optional[int] = ..., target: _Optional[str] = ..., roots: _Optional[bytes] = ..., count: _Optional[int] = ...) -> None: ...

class Returns(_message.Message):
    __slots__ = ("job", "version", "target", "to_acker", "trees")
    JOB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TO_ACKER_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    job: str
    version: int
    target: str
    to_acker: bool
    trees: bytes
    def __init__(self, job: _Optional[str] = ..., version: _Optional[int] = ..., target: _Optional[str] = ..., to_acker: _Optional[bool] = ..., trees: _Optional[bytes] = ...) -> None: ...

class LookUp(_message.Message):
    __slots__ = ("job", "version", "target", "group", "asker", "number", "state", "keys", "durable")
    JOB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ASKER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    job: str
    version: int
    target: str
    group: str
    asker: str
    number: int
    state: str
    keys: bytes
    durable: bool
    def __init__(self, job: _Optional[str] = ..., version: _Optional[int] = ..., target: _Optional[str] = ..., group: _Optional[str] = ..., asker: _Optional[str] = ..., number: _Optional[int] = ..., state: _Optional[str] = ..., keys: _Optional[bytes] = ..., durable: _Optional[bool] = ...) -> None: ...

class Found(_message.Message):
    __slots__ = ("job", "version", "target", "number", "states", "error")
    JOB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    job: str
    version: int
    target: str
    number: int
    states: bytes
    error: str
    def __init__(self, job: _Optional[str] = ..., version: _Optional[int] = ..., target: _Optional[str] = ..., number: _Optional[int] = ..., states: _Optional[bytes] = ..., error: _Optional[str] = ...) -> None: ...
