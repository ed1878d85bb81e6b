"""A function for each plugin of Onyx, with its options: docs/guide says what each means.

Generated from the structs of options by `python -m onyx.builder.generate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

from onyx.builder.types import Fn, Medium, Sink, Source
from onyx.builder.values import named, options_of


class StageOptions(TypedDict, total=False):
    """Options of `StageOptions`."""

    path: str
    bundle_segments: int | None
    bundle_seconds: float | None
    stage_params: Mapping[str, Any]
    schemas: Mapping[str, str]
    master: str | None
    spark_conf: Mapping[str, str]
    stage_timeout: float
    roll_bytes: int
    roll_segments: int
    roll_seconds: float


def blackhole() -> Sink:
    """Write by the plugin `blackhole`."""
    return Sink("blackhole", options_of({}))


def channel(channel: str) -> Medium:
    """Read or write by the plugin `channel`."""
    return Medium("channel", options_of({"channel": channel}))


class FilesCommon(TypedDict, total=False):
    """Options of `FilesCommon`."""

    format: Literal["jsonl", "parquet"]


class FilesInput(TypedDict, total=False):
    """Options of `FilesInput`."""

    format: Literal["jsonl", "text", "csv", "parquet"] | None
    header: bool
    columns: Sequence[str] | None
    delimiter: str | None
    types: Mapping[str, Literal["int", "float", "str", "bool"]]
    hive_partitioning: bool
    start_from: str | Mapping[str, Any]
    on_bad_record: Literal["fail", "segment"]
    record_number: str | None
    file_name: str | None
    record_bytes_max: int


class FilesOutput(TypedDict, total=False):
    """Options of `FilesOutput`."""

    roll_bytes: int
    roll_segments: int
    roll_seconds: float
    format: Literal["jsonl", "parquet"]
    compression: str | None
    nan: Literal["error", "null", "text"]


@overload
def files(path: str, **options: Unpack[FilesCommon]) -> Medium: ...


@overload
def files(path: str | Sequence[str], **options: Unpack[FilesInput]) -> Source: ...


@overload
def files(path: str, **options: Unpack[FilesOutput]) -> Sink: ...


def files(*required: Any, **options: Any) -> Medium:
    """Read or write by the plugin `files`."""
    return Medium("files", options_of({**named(["path"], required), **options}))


class FunctionOutput(TypedDict, total=False):
    """Options of `FunctionOutput`."""

    batch: bool


def function(fn: Fn, **options: Unpack[FunctionOutput]) -> Sink:
    """Write by the plugin `function`."""
    return Sink("function", options_of({"fn": fn, **options}))


class GeneratorInput(TypedDict, total=False):
    """Options of `GeneratorInput`."""

    segments: int | None
    rate_per_second: float | None
    fn: Fn | None
    partitions: int
    start_from: str | Mapping[str, Any]


def generator(**options: Unpack[GeneratorInput]) -> Source:
    """Read by the plugin `generator`."""
    return Source("generator", options_of({**options}))


class HttpInput(TypedDict, total=False):
    """Options of `HttpInput`."""

    journal_bytes_max: int
    keep_days: float | None
    keep_bytes: int | None
    partitions: int
    partition_key: str | None
    remember_requests: int
    remember_seconds: int
    start_from: str | Mapping[str, Any] | None
    on_failure: Literal["answer", "retry"]
    token_file: str | None
    token_env: str | None


class HttpOutput(TypedDict, total=False):
    """Options of `HttpOutput`."""

    url: str | None
    url_env: str | None
    method: Literal["POST", "PUT", "PATCH"]
    headers: Mapping[str, str]
    headers_env: Mapping[str, str]
    headers_file: Mapping[str, str]
    format: Literal["json", "jsonl", "json-array", "arrow"]
    nan: Literal["error", "null", "text"]
    request_segments: int
    request_bytes: int
    request_seconds: float
    idempotency_header: str | None
    idempotency: Literal["request", "content"]
    idempotency_key: str | None
    concurrency: int
    connect_seconds: float
    timeout_seconds: float
    retries_max: int | None
    retry_seconds_max: float
    dead_letter_path: str | None
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    roll_bytes: int
    roll_segments: int
    roll_seconds: float


@overload
def http() -> Medium: ...


@overload
def http(**options: Unpack[HttpInput]) -> Source: ...


@overload
def http(**options: Unpack[HttpOutput]) -> Sink: ...


def http(*required: Any, **options: Any) -> Medium:
    """Read or write by the plugin `http`."""
    return Medium("http", options_of({**named([], required), **options}))


class IteratorInput(TypedDict, total=False):
    """Options of `IteratorInput`."""

    journal_bytes_max: int
    keep_days: float | None
    keep_bytes: int | None
    remember_ids: int
    remember_seconds: int
    partitions: int
    repeat_seconds: float | None


def iterator(fn: Fn, **options: Unpack[IteratorInput]) -> Source:
    """Read by the plugin `iterator`."""
    return Source("iterator", options_of({"fn": fn, **options}))


class JobInput(TypedDict, total=False):
    """Options of `JobInput`."""

    partitions: int | None
    start_from: str | Mapping[str, Any]
    poll_seconds: float


def job(job: str, task: str, **options: Unpack[JobInput]) -> Source:
    """Read by the plugin `job`."""
    return Source("job", options_of({"job": job, "task": task, **options}))


class KafkaCommon(TypedDict, total=False):
    """Options of `KafkaCommon`."""

    config: Mapping[str, str | int | float | bool]
    config_env: Mapping[str, str]
    format: Literal["json", "text", "bytes", "arrow"]
    key_field: str | None
    timestamp_field: str | None
    headers_field: str | None


class KafkaInput(TypedDict, total=False):
    """Options of `KafkaInput`."""

    config: Mapping[str, str | int | float | bool]
    config_env: Mapping[str, str]
    start_from: str | Mapping[str, Any]
    bounded: bool
    format: Literal["json", "text", "bytes", "arrow"]
    key_field: str | None
    key_format: Literal["text", "bytes"]
    partition_field: str | None
    offset_field: str | None
    timestamp_field: str | None
    headers_field: str | None
    on_bad_record: Literal["fail", "segment"]
    compacted: bool


class KafkaOutput(TypedDict, total=False):
    """Options of `KafkaOutput`."""

    config: Mapping[str, str | int | float | bool]
    config_env: Mapping[str, str]
    format: Literal["json", "text", "bytes", "arrow"]
    value_field: str | None
    nan: Literal["error", "null", "text"]
    key_field: str | None
    timestamp_field: str | None
    headers_field: str | None
    roll_bytes: int
    roll_segments: int
    roll_seconds: float


@overload
def kafka(bootstrap_servers: str | Sequence[str], topic: str, **options: Unpack[KafkaCommon]) -> Medium: ...


@overload
def kafka(bootstrap_servers: str | Sequence[str], topic: str, **options: Unpack[KafkaInput]) -> Source: ...


@overload
def kafka(bootstrap_servers: str | Sequence[str], topic: str, **options: Unpack[KafkaOutput]) -> Sink: ...


def kafka(*required: Any, **options: Any) -> Medium:
    """Read or write by the plugin `kafka`."""
    return Medium("kafka", options_of({**named(["bootstrap_servers", "topic"], required), **options}))


class NatsInput(TypedDict, total=False):
    """Options of `NatsInput`."""

    journal_bytes_max: int
    keep_days: float | None
    keep_bytes: int | None
    remember_ids: int
    remember_seconds: int
    mode: Literal["journal", "native"]
    on_failure: Literal["kill", "source"]
    username: str | None
    password_env: str | None
    password_file: str | None
    tls: bool
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    prefetch: int
    id_field: str | None
    timestamp_field: str | None
    on_bad_record: Literal["fail", "segment"]
    max_deliveries: int | None
    subjects: Sequence[str]
    durable: str | None
    start_from: str
    ack_wait_seconds: float
    format: Literal["json", "text", "bytes", "arrow"]
    subject_field: str | None
    token_env: str | None
    credentials_file: str | None


def nats(servers: str | Sequence[str], stream: str, **options: Unpack[NatsInput]) -> Source:
    """Read by the plugin `nats`."""
    return Source("nats", options_of({"servers": servers, "stream": stream, **options}))


class RedisInput(TypedDict, total=False):
    """Options of `RedisInput`."""

    journal_bytes_max: int
    keep_days: float | None
    keep_bytes: int | None
    remember_ids: int
    remember_seconds: int
    mode: Literal["journal", "native"]
    on_failure: Literal["kill", "source"]
    username: str | None
    password_env: str | None
    password_file: str | None
    tls: bool
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    prefetch: int
    id_field: str | None
    timestamp_field: str | None
    on_bad_record: Literal["fail", "segment"]
    max_deliveries: int | None
    database: int
    group: str | None
    partitions: int
    start_from: str
    format: Literal["fields", "json", "text", "bytes", "arrow"]
    value_field: str | None
    claim_seconds: float | None
    delete: bool


def redis(server: str, stream: str, **options: Unpack[RedisInput]) -> Source:
    """Read by the plugin `redis`."""
    return Source("redis", options_of({"server": server, "stream": stream, **options}))


class RequestsInput(TypedDict, total=False):
    """Options of `RequestsInput`."""

    journal_bytes_max: int
    keep_days: float | None
    keep_bytes: int | None
    partitions: int
    partition_key: str | None
    remember_requests: int
    remember_seconds: int
    start_from: str | Mapping[str, Any] | None
    on_failure: Literal["answer", "retry"]
    token_file: str | None
    token_env: str | None


def requests(**options: Unpack[RequestsInput]) -> Source:
    """Read by the plugin `requests`."""
    return Source("requests", options_of({**options}))


class SequenceInput(TypedDict, total=False):
    """Options of `SequenceInput`."""

    partitions: int
    start_from: str | Mapping[str, Any]


def sequence(segments: Sequence[Mapping[str, Any]], **options: Unpack[SequenceInput]) -> Source:
    """Read by the plugin `sequence`."""
    return Source("sequence", options_of({"segments": segments, **options}))


class SourceInput(TypedDict, total=False):
    """Options of `SourceInput`."""

    journal_bytes_max: int
    keep_days: float | None
    keep_bytes: int | None
    remember_ids: int
    remember_seconds: int
    mode: Literal["journal", "native"]
    on_failure: Literal["kill", "source"]
    settings: Mapping[str, Any]
    partitions: int


def source(fn: Fn, **options: Unpack[SourceInput]) -> Source:
    """Read by the plugin `source`."""
    return Source("source", options_of({"fn": fn, **options}))


class SparkCommon(TypedDict, total=False):
    """Options of `SparkCommon`."""

    schema: str | None
    master: str | None
    spark_conf: Mapping[str, str]


class SparkInput(TypedDict, total=False):
    """Options of `SparkInput`."""

    frame: Fn | None
    arguments: Mapping[str, Any]
    format: str | None
    format_options: Mapping[str, str]
    format_options_env: Mapping[str, str]
    schema: str | None
    master: str | None
    spark_conf: Mapping[str, str]
    snapshot_timeout: float


class SparkOutput(TypedDict, total=False):
    """Options of `SparkOutput`."""

    roll_bytes: int
    roll_segments: int
    roll_seconds: float
    stage: Fn | None
    frame: str | None
    stage_params: Mapping[str, Any]
    master: str | None
    write: Mapping[str, Any]
    schema: str | None
    stage_timeout: float
    spark_conf: Mapping[str, str]


@overload
def spark(path: str, **options: Unpack[SparkCommon]) -> Medium: ...


@overload
def spark(path: str, **options: Unpack[SparkInput]) -> Source: ...


@overload
def spark(path: str, **options: Unpack[SparkOutput]) -> Sink: ...


def spark(*required: Any, **options: Any) -> Medium:
    """Read or write by the plugin `spark`."""
    return Medium("spark", options_of({**named(["path"], required), **options}))


class SqlOutput(TypedDict, total=False):
    """Options of `SqlOutput`."""

    url: str | None
    url_env: str | None
    schema: str | None
    columns: Sequence[str] | Mapping[str, str] | None
    mode: Literal["insert", "upsert"]
    keys: Sequence[str]
    positions_table: str
    roll_bytes: int
    roll_segments: int
    roll_seconds: float


def sql(table: str, **options: Unpack[SqlOutput]) -> Sink:
    """Write by the plugin `sql`."""
    return Sink("sql", options_of({"table": table, **options}))


class StdoutOutput(TypedDict, total=False):
    """Options of `StdoutOutput`."""

    nan: Literal["error", "null", "text"]


def stdout(**options: Unpack[StdoutOutput]) -> Sink:
    """Write by the plugin `stdout`."""
    return Sink("stdout", options_of({**options}))
