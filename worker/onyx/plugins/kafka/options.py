"""Options of the `kafka` plugins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import Options
from onyx.plugins.rolling import TRANSACTION_BYTES_MAX, TRANSACTION_LIMITS
from onyx.plugins.starting import StartFrom, wrong_start

_OURS = (
    "bootstrap.servers", "group.id", "group.instance.id", "group.protocol", "isolation.level",
    "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof",
    "transactional.id", "enable.idempotence", "acks", "request.required.acks", "logger",
)  # fmt: skip
"""Settings of librdkafka on which the plugins rely."""
OWN_GROUP = "onyx"
"""Readers say that they are of this group, and never join it; those of writers begin with it."""
_CODE = (
    "plugin.library.paths", "ssl.engine.location", "ssl.providers", "builtin.features",
    "sasl.kerberos.kinit.cmd",
)  # fmt: skip
"""Settings that make it load libraries or run programs."""
_IN_A_COMMAND = "sasl.kerberos."
_HARMLESS = re.compile(r"[A-Za-z0-9_./@:=-]*")
"""It puts these settings into the command that gets a Kerberos ticket, which a shell reads."""


class KafkaOptions(Options, frozen=True):
    """What input and output share: brokers, topic and settings of the client."""

    bootstrap_servers: str | list[str]
    """`host:port` of some brokers; several as a list or with commas."""
    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    """Topic to read or write, which is there already."""
    config: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    """Settings of librdkafka (`{security.protocol: sasl_ssl, sasl.mechanism: PLAIN}`); no
    secrets."""
    config_env: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings whose values are in variables of the workers' environment
    (`{sasl.username: KAFKA_USER, sasl.password: KAFKA_PASSWORD}`)."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        servers = self.bootstrap_servers
        for server in servers.split(",") if isinstance(servers, str) else servers:
            if not server.strip() or "://" in server:
                yield Problem("bootstrapServers", f"has {server!r}", "give host:port of brokers")
        if servers == []:
            yield Problem("bootstrapServers", "is empty", "give host:port of brokers")
        for key in (*self.config, *self.config_env):
            option = "config" if key in self.config else "configEnv"
            if key in _OURS or key.endswith(("_cb", ".cb")):
                yield Problem(option, f"has {key!r}, which Onyx sets itself", "leave it out")
            elif key in _CODE:
                yield Problem(option, f"has {key!r}, which loads code", "leave it out")
            elif key.startswith(_IN_A_COMMAND) and not _HARMLESS.fullmatch(
                str(self.config.get(key, ""))
            ):
                hint = "leave out what is no letter, digit or one of _./@:=-"
                yield Problem(option, f"has {key!r} with a value that a shell would read", hint)
            elif key in self.config and key in self.config_env:
                yield Problem("configEnv", f"has {key!r}, as config has", "leave one of them out")


class KafkaInputOptions(KafkaOptions, frozen=True):
    """Options of the input."""

    start_from: StartFrom = "beginning"
    """Where a new job begins: `beginning`, `end`, a time (`2026-11-21T09:00:00Z`),
    `{timeAgo: 2 hours}`, `{recordsAgo: 1000}` in each partition, or offsets, as
    `{position: 500}` or `{positions: {"0": 500, "1": 20}}`."""
    bounded: bool = False
    """End at what is there when the job begins, instead of waiting for more."""
    format: Literal["json", "text", "bytes", "arrow"] = "json"
    """`json`: the value is an object, the segment. `arrow`: it is an Arrow IPC stream, and each of
    its rows is a segment. Otherwise the segment is `{"value": ...}`."""
    key_field: str | None = None
    """Key under which each segment gets the message's key."""
    key_format: Literal["text", "bytes"] = "text"
    """What the key of a message is in its segment. As `text`, one that is not UTF-8 makes its
    message a bad record."""
    partition_field: str | None = None
    """Key under which it gets the number of its partition."""
    offset_field: str | None = None
    """Key under which it gets the message's offset."""
    timestamp_field: str | None = None
    """Key under which it gets the message's timestamp, in milliseconds since 1970."""
    headers_field: str | None = None
    """Key under which it gets the message's headers: a map to text, or to bytes where a value is
    not UTF-8; to a list of these where a name comes several times."""
    on_bad_record: Literal["fail", "deadLetter", "segment"] = "fail"
    """`fail` the job, write a `deadLetter`, or give a `segment` `{"_error": ..., "_raw": ...}` in
    the message's place."""
    consumer_group: Annotated[str, msgspec.Meta(min_length=1, max_length=249)] | None = None
    """Consumer group to which the job commits every few seconds how far it is, for Kafka's tools
    and autoscalers. It never reads there: nothing begins at what a group says."""
    compacted: bool = False
    """Read a compacted topic; see the guide for what may then be lost after a failure."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        if self.format == "arrow" and self.headers_field is not None:
            yield Problem("headersField", "is not for format arrow")
        if self.consumer_group is not None:
            yield from self._wrong_group(self.consumer_group)
        yield from wrong_start(self.start_from, {})

    def _wrong_group(self, group: str) -> Iterator[Problem]:
        if group == OWN_GROUP or group.startswith(f"{OWN_GROUP}."):
            what = f"is {group!r}: Onyx has groups of such names of its own"
            yield Problem("consumerGroup", what, "take another name")
        if self.bounded:
            what = (
                "is for a job that goes on; bounded: true ends it, and its group would lag for ever"
            )
            yield Problem("consumerGroup", what, "leave one of them out")


class KafkaOutputOptions(KafkaOptions, frozen=True):
    """Options of the output."""

    format: Literal["json", "text", "bytes", "arrow"] = "json"
    """`json`: the segment is the value; `text`, `bytes`: what is under `valueField`. `arrow`: a
    message holds the segments of a batch, as a stream of the Arrow IPC format."""
    value_field: str | None = None
    """text, bytes: key of the segment that holds the value; null writes a message without one."""
    nan: Literal["error", "null", "text"] = "error"
    """json: what to write for NaN and infinities, which JSON lacks; `text` is `"NaN"`,
    `"Infinity"`."""
    key_field: str | None = None
    """Key of the segment whose text, number or bytes is the message's key: messages with the same
    key go to the same partition. Without it they go anywhere."""
    timestamp_field: str | None = None
    """Key of the segment with the message's timestamp: milliseconds since 1970 or a time."""
    headers_field: str | None = None
    """Key of the segment with the message's headers: a map to text or bytes, or to lists of
    these: a header each."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1, le=TRANSACTION_BYTES_MAX)] = (
        TRANSACTION_LIMITS.size_bytes
    )
    """exactly-once: end a transaction at about this size."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = TRANSACTION_LIMITS.segments
    """exactly-once: end a transaction after so many segments."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = TRANSACTION_LIMITS.age_s
    """exactly-once: end a transaction after this time; readers of what is committed wait for it."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        if self.format == "arrow":
            yield from self._wrong_for_arrow()
        elif self.format != "json" and self.value_field is None:
            yield Problem("valueField", f"is missing: format {self.format} needs to know the key")
        if self.format == "json" and self.value_field is not None:
            yield Problem("valueField", "is for format text or bytes", "json is the whole segment")

    def _wrong_for_arrow(self) -> Iterator[Problem]:
        given = {"valueField": self.value_field, "keyField": self.key_field}
        given |= {"timestampField": self.timestamp_field, "headersField": self.headers_field}
        for option, value in given.items():
            if value is not None:
                yield Problem(option, "is of one segment, but a message of format arrow has many")
