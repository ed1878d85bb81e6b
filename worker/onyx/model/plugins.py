"""The plugins that come with Onyx: one row for each plugin and direction.

This table is the only one that declares a plugin. The model takes the short names from it,
`onyx.submission` the options, `onyx.plugins.registry` the class that it builds, and Spark what it
does with the plugin. Import paths are text, so reading the table imports no plugin and no package
that a plugin needs.

Rejected: entry points of installed distributions (the meaning of a job would depend on what else is
installed) and registration by a decorator (every plugin would be imported to learn its name).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from onyx.model.retention import Retention


class BuiltIn(msgspec.Struct, frozen=True):
    """A plugin in one direction."""

    type: Literal["input", "output"]
    name: str
    factory: str
    """`module:name` of a class or function that takes a `PluginContext` and the options."""
    options: str
    """`module:name` of the struct of its options. Its module imports neither Arrow nor the extra
    package: options are also checked where those are not installed."""
    extra: str = ""
    """Optional dependencies that it needs: `pip install onyx-on-kubernetes[extra]`."""
    one_result: bool = False
    """True for an output that makes one result, at `path`, of what all versions of a job wrote."""
    by_spark: bool = False
    """Whether a job with `engine: spark` can have it: of an output, its segments can be staged, or
    need not be."""
    keeps_parts: bool = False
    """Whether an output leaves files at `path`; executors may write them, Spark programs read."""
    endless: bool = False
    """Whether an input may have no end."""
    ends_with: str = ""
    """Option that gives such an input an end."""
    journalled: bool = False
    """Whether an input keeps what it gives in a journal, because its source has no positions."""
    takes_requests: bool = False
    """Whether clients hand segments to an input by requests to any worker."""
    takes_back: bool = False
    """Whether the source of an input can hear of messages that failed (`onFailure: source`)."""


PLUGINS = (
    BuiltIn(
        "input", "channel", "onyx.plugins.channel:ChannelInput",
        "onyx.plugins.small_options:ChannelOptions",
    ),
    BuiltIn(
        "input", "files", "onyx.plugins.files.input:FilesInput",
        "onyx.plugins.files.options:FilesInputOptions", by_spark=True,
    ),
    BuiltIn(
        "input", "generator", "onyx.plugins.generator:GeneratorInput",
        "onyx.plugins.small_options:GeneratorOptions", by_spark=True, endless=True,
        ends_with="segments",
    ),
    BuiltIn(
        "input", "http", "onyx.plugins.requests.input:requests_input",
        "onyx.plugins.requests.options:RequestsOptions", endless=True, journalled=True,
        takes_requests=True,
    ),
    BuiltIn(
        "input", "job", "onyx.plugins.job.input:JobInput",
        "onyx.plugins.job.options:JobOptions", endless=True, journalled=True,
    ),
    BuiltIn(
        "input", "iterator", "onyx.plugins.sources.iterator:iterator_input",
        "onyx.plugins.sources.options:IteratorOptions", endless=True, journalled=True,
    ),
    BuiltIn(
        "input", "kafka", "onyx.plugins.kafka.input:KafkaInput",
        "onyx.plugins.kafka.options:KafkaInputOptions", extra="kafka", by_spark=True, endless=True,
    ),
    BuiltIn(
        "input", "nats", "onyx.plugins.queues.jetstream:nats_input",
        "onyx.plugins.queues.options:NatsOptions", extra="nats", endless=True, journalled=True,
        takes_back=True,
    ),
    BuiltIn(
        "input", "redis", "onyx.plugins.queues.redis_streams:redis_input",
        "onyx.plugins.queues.options:RedisOptions", extra="redis", endless=True, journalled=True,
        takes_back=True,
    ),
    BuiltIn(
        "input", "requests", "onyx.plugins.requests.input:requests_input",
        "onyx.plugins.requests.options:RequestsOptions", endless=True, journalled=True,
        takes_requests=True,
    ),
    BuiltIn(
        "input", "sequence", "onyx.plugins.sequence:SequenceInput",
        "onyx.plugins.small_options:SequenceOptions", by_spark=True,
    ),
    BuiltIn(
        "input", "source", "onyx.plugins.sources.live:source_input",
        "onyx.plugins.sources.options:SourceOptions", endless=True, journalled=True,
        takes_back=True,
    ),
    BuiltIn(
        "input", "spark", "onyx.spark.input.plugin:SparkInput",
        "onyx.spark.input.options:SparkInputOptions", extra="spark",
    ),
    BuiltIn(
        "output", "blackhole", "onyx.plugins.blackhole:BlackholeOutput",
        "onyx.plugins.small_options:BlackholeOptions", by_spark=True,
    ),
    BuiltIn(
        "output", "channel", "onyx.plugins.channel:ChannelOutput",
        "onyx.plugins.small_options:ChannelOptions",
    ),
    BuiltIn(
        "output", "files", "onyx.plugins.files.output:FilesOutput",
        "onyx.plugins.files.options:FilesOutputOptions", by_spark=True, keeps_parts=True,
    ),
    BuiltIn(
        "output", "function", "onyx.plugins.function:FunctionOutput",
        "onyx.plugins.small_options:FunctionOptions", by_spark=True,
    ),
    BuiltIn(
        "output", "http", "onyx.plugins.http.output:HttpOutput",
        "onyx.plugins.http.options:HttpOptions", extra="http",
    ),
    BuiltIn(
        "output", "kafka", "onyx.plugins.kafka.output:KafkaOutput",
        "onyx.plugins.kafka.options:KafkaOutputOptions", extra="kafka",
    ),
    BuiltIn(
        "output", "spark", "onyx.spark.stage.output:SparkOutput",
        "onyx.spark.stage.options:SparkOptions", extra="spark", one_result=True,
        by_spark=True, keeps_parts=True,
    ),
    BuiltIn(
        "output", "sql", "onyx.plugins.sql.output:SqlOutput",
        "onyx.plugins.sql.options:SqlOptions", extra="sql",
    ),
    BuiltIn(
        "output", "stdout", "onyx.plugins.stdout:StdoutOutput",
        "onyx.plugins.small_options:StdoutOptions", by_spark=True,
    ),
)  # fmt: skip

STAGE_IN_THE_MIDDLE = (
    BuiltIn(
        "input", "sparkStage", "onyx.spark.middle.results:StageResults",
        "onyx.spark.middle.options:MiddleOptions", extra="spark",
    ),
    BuiltIn(
        "output", "sparkStage", "onyx.spark.middle.spool:StageSpool",
        "onyx.spark.middle.options:MiddleOptions", extra="spark",
    ),
)  # fmt: skip
"""What a task with `sparkStage` is made of: it writes what comes, and reads what the stage made of
it. No job can name them as plugins."""
STAGE = STAGE_IN_THE_MIDDLE[0].name

INPUTS: Mapping[str, BuiltIn] = {row.name: row for row in PLUGINS if row.type == "input"}
OUTPUTS: Mapping[str, BuiltIn] = {row.name: row for row in PLUGINS if row.type == "output"}
TABLES: Mapping[str, BuiltIn] = {
    row.name: row for row in INPUTS.values() if not row.journalled and row.extra != "spark"
}
"""Inputs that a table may read, as far as they have an end."""
BY_TYPE: Mapping[str, Mapping[str, BuiltIn]] = {
    "input": INPUTS,
    "output": OUTPUTS,
    "table": TABLES,
}
"""By the `type` of a catalog entry."""
NAMES = tuple(sorted({row.name for row in PLUGINS}))
"""All short names."""


def built_in(kind: str | None, plugin: str | None) -> BuiltIn | None:
    """The row of a plugin in a catalog entry of this `type`; None of one of the user's own."""
    return BY_TYPE.get(kind or "", {}).get(plugin or "")


def runs_spark(kind: str | None, plugin: str | None) -> bool:
    """Whether such a plugin runs something on Spark."""
    row = built_in(kind, plugin)
    return row is not None and row.extra == "spark"


def makes_one_result(kind: str, plugin: str | None) -> bool:
    """True for an output that makes one result, at `path`, of what all versions of a job wrote."""
    row = built_in(kind, plugin)
    return row is not None and row.one_result


def takes_requests(kind: str, plugin: str | None) -> bool:
    """Whether clients hand segments to such an input by requests."""
    row = built_in(kind, plugin)
    return row is not None and row.takes_requests


def keeps_journal(kind: str, plugin: str | None, options: Mapping[str, object]) -> bool:
    """Whether such an input keeps what it gives in a journal."""
    row = built_in(kind, plugin)
    return row is not None and row.journalled and not reads_native(kind, plugin, options)


def keeps_processed(kind: str, plugin: str | None, options: Mapping[str, Any]) -> bool:
    """Whether such an input keeps in its journal what is processed."""
    retention = Retention(options.get("keepDays"), options.get("keepBytes"))
    return retention.keeps and keeps_journal(kind, plugin, options)


def journals_of(options: Mapping[str, object]) -> int:
    """How many partitions an input with journals has: subjects are one each."""
    subjects, count = options.get("subjects"), options.get("partitions", 1)
    return len(subjects) if isinstance(subjects, list) and subjects else int(str(count))


def reads_native(kind: str | None, plugin: str | None, options: Mapping[str, object]) -> bool:
    """Whether such an input leaves what it reads in its queue until it is processed."""
    row = built_in(kind, plugin)
    return row is not None and row.journalled and options.get("mode") == "native"


def returns_failures(kind: str | None, plugin: str | None, options: Mapping[str, object]) -> bool:
    """Whether the source of such an input hears of what has failed."""
    row = built_in(kind, plugin)
    return row is not None and row.takes_back and options.get("onFailure") == "source"


def deals_parts(kind: str, plugin: str | None) -> bool:
    """Whether such an input deals the parts of another job to its partitions."""
    return (kind, plugin) == ("input", "job")


def keeps_parts(kind: str, plugin: str | None) -> bool:
    """Whether an output leaves files at `path`; executors may write them, Spark programs read."""
    row = built_in(kind, plugin)
    return row is not None and row.keeps_parts


def may_be_endless(plugin: str, options: Mapping[str, object]) -> bool:
    """Whether an input may have no end. Of one of the user's own nobody knows."""
    row = INPUTS.get(plugin)
    if row is None:
        return True
    return row.endless and (not row.ends_with or options.get(row.ends_with) is None)
