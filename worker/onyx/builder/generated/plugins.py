"""A function for each plugin of Onyx, with its options: docs/guide says what each means.

Generated from the structs of options by `python -m onyx.builder.generate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

from onyx.builder.types import Fn, Medium, Sink, Source
from onyx.builder.values import named, options_of


class StageOptions(TypedDict, total=False):
    """Options, as keyword arguments."""

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


class FilesCommonKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    format: Literal["jsonl", "parquet"]


class FilesInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    format: Literal["jsonl", "text", "csv", "parquet"] | None
    header: bool
    columns: Sequence[str] | None
    delimiter: str | None
    types: Mapping[str, Literal["int", "float", "str", "bool"]]
    hive_partitioning: bool
    start_from: str | Mapping[str, Any]
    on_bad_record: Literal["fail", "deadLetter", "segment"]
    record_number: str | None
    file_name: str | None
    record_bytes_max: int


class FilesOutputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    roll_bytes: int
    roll_segments: int
    roll_seconds: float
    format: Literal["jsonl", "parquet"]
    compression: str | None
    nan: Literal["error", "null", "text"]
    existing: Literal["append", "refuse"] | None


@overload
def files(path: str, **options: Unpack[FilesCommonKeywords]) -> Medium: ...


@overload
def files(path: str | Sequence[str], **options: Unpack[FilesInputKeywords]) -> Source: ...


@overload
def files(path: str, **options: Unpack[FilesOutputKeywords]) -> Sink: ...


def files(*required: Any, **options: Any) -> Medium:
    """Read or write by the plugin `files`."""
    return Medium("files", options_of({**named(["path"], required), **options}))


class FunctionOutputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    batch: bool


def function(fn: Fn, **options: Unpack[FunctionOutputKeywords]) -> Sink:
    """Write by the plugin `function`."""
    return Sink("function", options_of({"fn": fn, **options}))


class GeneratorInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    segments: int | None
    rate_per_second: float | None
    fn: Fn | None
    partitions: int
    start_from: str | Mapping[str, Any]


def generator(**options: Unpack[GeneratorInputKeywords]) -> Source:
    """Read by the plugin `generator`."""
    return Source("generator", options_of({**options}))


class HttpInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

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


class HttpOutputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

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
def http(**options: Unpack[HttpInputKeywords]) -> Source: ...


@overload
def http(**options: Unpack[HttpOutputKeywords]) -> Sink: ...


def http(*required: Any, **options: Any) -> Medium:
    """Read or write by the plugin `http`."""
    return Medium("http", options_of({**named([], required), **options}))


class IteratorInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    journal_bytes_max: int
    keep_days: float | None
    keep_bytes: int | None
    remember_ids: int
    remember_seconds: int
    partitions: int
    repeat_seconds: float | None


def iterator(fn: Fn, **options: Unpack[IteratorInputKeywords]) -> Source:
    """Read by the plugin `iterator`."""
    return Source("iterator", options_of({"fn": fn, **options}))


class JobInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    partitions: int | None
    start_from: str | Mapping[str, Any]
    poll_seconds: float


def job(job: str, task: str, **options: Unpack[JobInputKeywords]) -> Source:
    """Read by the plugin `job`."""
    return Source("job", options_of({"job": job, "task": task, **options}))


class KafkaCommonKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    config: Mapping[str, str | int | float | bool]
    config_env: Mapping[str, str]
    format: Literal["json", "text", "bytes", "arrow"]
    key_field: str | None
    timestamp_field: str | None
    headers_field: str | None


class KafkaInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

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
    on_bad_record: Literal["fail", "deadLetter", "segment"]
    consumer_group: str | None
    compacted: bool


class KafkaOutputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

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
def kafka(bootstrap_servers: str | Sequence[str], topic: str, **options: Unpack[KafkaCommonKeywords]) -> Medium: ...


@overload
def kafka(bootstrap_servers: str | Sequence[str], topic: str, **options: Unpack[KafkaInputKeywords]) -> Source: ...


@overload
def kafka(bootstrap_servers: str | Sequence[str], topic: str, **options: Unpack[KafkaOutputKeywords]) -> Sink: ...


def kafka(*required: Any, **options: Any) -> Medium:
    """Read or write by the plugin `kafka`."""
    return Medium("kafka", options_of({**named(["bootstrap_servers", "topic"], required), **options}))


class NatsInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

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
    on_bad_record: Literal["fail", "deadLetter", "segment"]
    max_deliveries: int | None
    subjects: Sequence[str]
    durable: str | None
    start_from: str
    ack_wait_seconds: float
    format: Literal["json", "text", "bytes", "arrow"]
    subject_field: str | None
    token_env: str | None
    credentials_file: str | None


def nats(servers: str | Sequence[str], stream: str, **options: Unpack[NatsInputKeywords]) -> Source:
    """Read by the plugin `nats`."""
    return Source("nats", options_of({"servers": servers, "stream": stream, **options}))


class RedisInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

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
    on_bad_record: Literal["fail", "deadLetter", "segment"]
    max_deliveries: int | None
    database: int
    group: str | None
    partitions: int
    start_from: str
    format: Literal["fields", "json", "text", "bytes", "arrow"]
    value_field: str | None
    claim_seconds: float | None
    delete: bool


def redis(server: str, stream: str, **options: Unpack[RedisInputKeywords]) -> Source:
    """Read by the plugin `redis`."""
    return Source("redis", options_of({"server": server, "stream": stream, **options}))


class RequestsInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

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


def requests(**options: Unpack[RequestsInputKeywords]) -> Source:
    """Read by the plugin `requests`."""
    return Source("requests", options_of({**options}))


class SequenceInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    partitions: int
    start_from: str | Mapping[str, Any]


def sequence(segments: Sequence[Mapping[str, Any]], **options: Unpack[SequenceInputKeywords]) -> Source:
    """Read by the plugin `sequence`."""
    return Source("sequence", options_of({"segments": segments, **options}))


class SourceInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    journal_bytes_max: int
    keep_days: float | None
    keep_bytes: int | None
    remember_ids: int
    remember_seconds: int
    mode: Literal["journal", "native"]
    on_failure: Literal["kill", "source"]
    settings: Mapping[str, Any]
    partitions: int


def source(fn: Fn, **options: Unpack[SourceInputKeywords]) -> Source:
    """Read by the plugin `source`."""
    return Source("source", options_of({"fn": fn, **options}))


class SparkCommonKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    schema: str | None
    master: str | None
    spark_conf: Mapping[str, str]


class SparkInputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    frame: Fn | None
    arguments: Mapping[str, Any]
    format: str | None
    format_options: Mapping[str, str]
    format_options_env: Mapping[str, str]
    schema: str | None
    master: str | None
    spark_conf: Mapping[str, str]
    snapshot_timeout: float


class SparkOutputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

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
def spark(path: str, **options: Unpack[SparkCommonKeywords]) -> Medium: ...


@overload
def spark(path: str, **options: Unpack[SparkInputKeywords]) -> Source: ...


@overload
def spark(path: str, **options: Unpack[SparkOutputKeywords]) -> Sink: ...


def spark(*required: Any, **options: Any) -> Medium:
    """Read or write by the plugin `spark`."""
    return Medium("spark", options_of({**named(["path"], required), **options}))


class SqlOutputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

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


def sql(table: str, **options: Unpack[SqlOutputKeywords]) -> Sink:
    """Write by the plugin `sql`."""
    return Sink("sql", options_of({"table": table, **options}))


class StdoutOutputKeywords(TypedDict, total=False):
    """Options, as keyword arguments."""

    nan: Literal["error", "null", "text"]


def stdout(**options: Unpack[StdoutOutputKeywords]) -> Sink:
    """Write by the plugin `stdout`."""
    return Sink("stdout", options_of({**options}))
