"""Options of the inputs `redis` and `nats`. Imports no client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from onyx.errors import Problem
from onyx.plugins.sources.options import LiveOptions

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:/@\s\[\]]+):\d{1,5}")
_STREAM_ID = re.compile(r"\d+-\d+")
_NAME = re.compile(r"[^\s.*>/\\]+")
"""Name of a stream or consumer of NATS."""


class QueueOptions(LiveOptions, frozen=True):
    """What inputs from queues share: credentials, TLS, and how messages become segments."""

    username: str | None = None
    """Who we are to the server."""
    password_env: str | None = None
    """Variable of the workers' environment that holds the password."""
    password_file: str | None = None
    """File of the workers that holds the password."""
    tls: bool = False
    """Speak TLS, and look at the certificate of the server."""
    ca_file: str | None = None
    """Certificates of those whom to trust, in PEM; without it those of the system."""
    certificate_file: str | None = None
    """Certificate with which the task identifies itself, in PEM."""
    key_file: str | None = None
    """The key of that certificate, if it is in a file of its own."""
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = 1_000
    """Messages taken at a time."""
    id_field: str | None = None
    """Key under which each segment gets the id of its message, as text."""
    timestamp_field: str | None = None
    """Key under which it gets the time at which the server took the message, in milliseconds since
    1970."""
    on_bad_record: Literal["fail", "deadLetter", "segment"] = "fail"
    """`fail` the job (with `onFailure: source`, the message), write a `deadLetter`, or give a
    `segment` `{"_error": ..., "_raw": ...}` in the message's place."""
    max_deliveries: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """With `onFailure: source`: how often a message is given at most, by which worker ever."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        if self.max_deliveries is not None and self.on_failure != "source":
            yield Problem("maxDeliveries", "is for onFailure: source", "set it, or leave it out")
        if self.password_env is not None and self.password_file is not None:
            yield Problem("passwordFile", "is given together with passwordEnv", "keep one of them")
        if not self.tls:
            files = {"caFile": self.ca_file, "certificateFile": self.certificate_file}
            for option, file in (files | {"keyFile": self.key_file}).items():
                if file is not None:
                    yield Problem(option, "is for tls: true", "set it, or leave the file out")
        elif self.key_file is not None and self.certificate_file is None:
            yield Problem("certificateFile", "is missing: keyFile is the key of a certificate")


class RedisOptions(QueueOptions, frozen=True, kw_only=True):
    """Options of the input `redis`."""

    server: str
    """`host:port` of Redis or Valkey."""
    database: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of the database."""
    stream: Annotated[str, msgspec.Meta(min_length=1)]
    """Key of the stream."""
    group: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """Consumer group, made if it is not there; without it `onyx.<job>.<task>`, by name. What the
    group was given before is not read again by another job."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Consumers of the group, each read by one peer."""
    start_from: str = "earliest"
    """Where a new group begins: `earliest`, `latest`, or behind an id (`1726000000000-0`)."""
    format: Literal["fields", "json", "text", "bytes", "arrow"] = "fields"
    """`fields`: the fields of the entry are the segment, as text. Otherwise one field is the
    message: `json`, an object; `arrow`, an Arrow IPC stream whose rows are segments; or else the
    segment is `{"value": ...}`."""
    value_field: str | None = None
    """All but fields: the field of an entry that is the message (`value`)."""
    claim_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Take over what other consumers of the group, which are none of this job, were given and have
    not acknowledged for so long."""
    delete: bool = False
    """Delete an entry from the stream when it is acknowledged."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        yield from _wrong_addresses("server", [self.server])
        if self.format == "fields" and self.value_field is not None:
            yield Problem("valueField", "is not for format fields", "choose another format")
        if self.start_from not in ("earliest", "latest") and not _STREAM_ID.fullmatch(
            self.start_from
        ):
            hint = "take earliest, latest or an id as 1726000000000-0"
            yield Problem("startFrom", f"is {self.start_from!r}", hint)


class NatsOptions(QueueOptions, frozen=True, kw_only=True):
    """Options of the input `nats`."""

    servers: str | list[str]
    """`host:port` of some servers of a cluster; several as a list or with commas."""
    stream: Annotated[str, msgspec.Meta(min_length=1)]
    """Stream of JetStream, which is there already."""
    subjects: list[str] = msgspec.field(default_factory=list)
    """Subjects of the stream, each a partition of the input and read by one peer
    (`[orders.eu.>, orders.us.>]`); without them all that is in the stream, as one."""
    durable: str | None = None
    """Name of the durable consumers, to which the number of the partition is added; they are made
    if they are not there. Without it `onyx-<job>-<task>`, by name."""
    start_from: str = "earliest"
    """Where a new consumer begins: `earliest`, `latest`, or a number of the stream (`1200`)."""
    ack_wait_seconds: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 60.0
    """The server gives a message again that was not acknowledged for so long."""
    format: Literal["json", "text", "bytes", "arrow"] = "json"
    """`json`: a message is an object, the segment. `arrow`: it is an Arrow IPC stream, and each of
    its rows is a segment. Otherwise the segment is `{"value": ...}`."""
    subject_field: str | None = None
    """Key under which each segment gets the subject of its message."""
    token_env: str | None = None
    """Variable of the workers' environment that holds a token, in place of a password."""
    credentials_file: str | None = None
    """File of the workers with the credentials of a user (`.creds`), in place of a password."""

    @property
    def addresses(self) -> list[str]:
        """The servers, one by one."""
        given = self.servers.split(",") if isinstance(self.servers, str) else self.servers
        return [each.strip() for each in given]

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        yield from _wrong_addresses("servers", self.addresses)
        for option, name in (("stream", self.stream), ("durable", self.durable or "x")):
            if not _NAME.fullmatch(name):
                hint = "names have no spaces and none of . * > / \\"
                yield Problem(option, f"is {name!r}", hint)
        if len(set(self.subjects)) < len(self.subjects):
            yield Problem("subjects", "names one twice", "each is a partition")
        if self.start_from not in ("earliest", "latest") and not self.start_from.isdecimal():
            hint = "take earliest, latest or a number of the stream"
            yield Problem("startFrom", f"is {self.start_from!r}", hint)
        ways = (self.username, self.token_env, self.credentials_file)
        if sum(each is not None for each in ways) > 1:
            hint = "keep one of username, tokenEnv and credentialsFile"
            yield Problem("username", "is not the only way to say who we are", hint)


def _wrong_addresses(option: str, addresses: list[str]) -> Iterator[Problem]:
    for each in addresses or [""]:
        if not _ADDRESS.fullmatch(each):
            yield Problem(option, f"has {each!r}", "give host:port, and credentials by passwordEnv")
