"""Settings of a process: nested, frozen classes with one field and its docstring for each setting.

They come from keyword arguments, or from environment variables by `from_environment`:
`ONYX_ZOOKEEPER_ADDRESS` is `zookeeper.address`. A new setting is a new field: its type says what
a variable may hold, and the page of all settings is generated. Limits have their unit in the name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Meta

from onyx.errors import SettingsError
from onyx.structs import Mismatch, convert

__all__ = [
    "LedgerSettings",
    "LogSettings",
    "Settings",
    "StateSettings",
    "TaskSettings",
    "TelemetrySettings",
    "TlsSettings",
    "TransportSettings",
    "ZooKeeperServerSettings",
    "ZooKeeperSettings",
    "from_environment",
]
"""Public names; the rest is for Onyx itself."""

T = TypeVar("T")

FnParams = Mapping[str, Sequence[Any]]
JobScheduler = Literal["balanced", "greedy", "percentage"]
JOB_SCHEDULERS: tuple[str, ...] = get_args(JobScheduler)
Port = Annotated[int, Meta(ge=0, le=65_535)]
FRAME_BYTES_MIN = 2_200_000
"""Room for the largest segment (`codec.refusals.SEGMENT_BYTES_MAX`), its lineage and a header."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files in PEM, as cert-manager names them: `ca.crt`, `tls.crt`, `tls.key`. They are read again
    for each new connection, so that a renewed certificate needs no restart."""

    ca_file: str = ""
    """Certificates of the authorities that sign those of the other side; empty means no TLS."""
    cert_file: str = ""
    """Certificate of this process, followed by those that lead to the authority."""
    key_file: str = ""
    """Private key of `cert_file`, without a password."""
    server_name: str = ""
    """DNS name that the other side's certificate must carry, whatever address is dialled; empty
    means the host that is dialled."""


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """Connection to ZooKeeper."""

    address: str = "127.0.0.1:2181"
    """Connect string, `host:port` separated by commas."""
    session_timeout_s: float = 6.0
    """Asked of the server; what it negotiates counts. A dead group is noticed after about this."""
    connect_timeout_s: float = 15.0
    """Longest wait for the first connection before the command fails with a clear message."""
    tls: TlsSettings = field(default_factory=TlsSettings)
    """To ZooKeeper; `cert_file` and `key_file` only if its servers ask for a certificate."""
    auth_user: str = ""
    """User (digest scheme) who alone may read and write what this tenancy keeps in ZooKeeper; empty
    means that everybody may who reaches ZooKeeper."""
    auth_password_file: str = ""
    """File with the password of `auth_user`."""


@dataclass(frozen=True, slots=True)
class ZooKeeperServerSettings:
    """Of a server that `onyx zookeeper` runs; its clients do not read them."""

    data_dir: str = ".onyx/zookeeper"
    """Folder for its data, on a disk that survives the server."""
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for clients on other machines."""
    port: Port = 2181
    """Port for clients."""
    servers: tuple[str, ...] = ()
    """Hosts of an ensemble, in the order of their ids; empty or one: the server stands alone."""
    id: int | None = None
    """Place in `servers`, from 1; None: after the host's name, where `zookeeper-0` is 1."""
    quorum_port: Port = 2888
    """Port on which the leader of an ensemble is followed."""
    election_port: Port = 3888
    """Port on which an ensemble elects its leader."""
    formation_port: Port = 4888
    """Port on which the servers of an ensemble ask each other what their folders hold."""
    heap_mib: int = 256
    """Memory of the Java virtual machine in MiB."""
    tls: TlsSettings = field(default_factory=TlsSettings)
    """Of its ports, for clients and within an ensemble, which then ask for a certificate;
    `server_name` has no effect: the certificate carries the names of the servers."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log and its documents in ZooKeeper."""

    entry_bytes_max: int = 262_144
    """Largest entry, checked before an append (ZooKeeper drops the connection at 1 MiB)."""
    chunk_bytes_max: int = 524_288
    """Largest piece of a content-addressed document; larger documents are split."""
    poll_interval_s: float = 15.0
    """Slow poll of the log, in case a watch was lost."""
    append_queue_entries_max: int = 1_000
    """Entries waiting to be written before a writer is told to wait."""
    join_back_off_s: float = 0.5
    """Mean random wait after an aborted join."""


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Segments and acks between groups."""

    bind_host: str = "127.0.0.1"
    """Address to listen on."""
    advertise_host: str = ""
    """Address that other groups dial; empty means `bind_host`."""
    port: Port = 0
    """Port to listen on; 0 takes a free one."""
    frame_bytes_target: int = 262_144
    """Packets are coalesced up to this size under load (a gRPC message costs ~300 us of CPU)."""
    frame_bytes_max: Annotated[int, Meta(ge=FRAME_BYTES_MIN)] = 4_000_000
    """Largest message sent or taken, at least 2,200,000, so that the largest segment fits; gRPC's
    own default limit is 4 MiB."""
    link_bytes_max: int = 8_388_608
    """Bytes queued or unacknowledged on one link before senders are refused."""
    heartbeat_interval_s: float = 1.0
    """Period of our own heartbeats on each stream, in both directions."""
    heartbeat_timeout_s: float = 5.0
    """Silence after which a link counts as broken and is dialled again."""
    reconnect_back_off_s: float = 0.1
    """First wait before dialling again; doubles up to 2 s."""
    short_circuit: bool = True
    """Hand batches over without encoding inside one process."""
    tls_connection_age_max_s: float = 3_600.0
    """Age at which a TLS connection between groups is made anew, with the certificates of then."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Threads and patience of tasks."""

    inbox_segments_max: int = 20_000
    """Segments waiting in front of a task before senders are refused."""
    ready_back_off_s: float = 0.1
    """Wait before a lifecycle's start_task is asked again."""
    retry_start_interval_s: float = 2.0
    """Wait before a virtual peer is restarted because a lifecycle says so; doubles each time."""
    retry_start_interval_max_s: float = 30.0
    """Longest such wait."""
    restarts_max: int = 5
    """Restarts of a task's peers after which its next failure kills the job."""
    restarts_forgotten_after_s: float = 60.0
    """Work of a peer without a failure, after which its restarts are counted anew."""
    losses_max: int = 3
    """Worker processes that die over one segment, after which it is not tried any more."""
    stop_timeout_s: float = 20.0
    """Longest wait for a task to stop before its peer may take another."""
    report_values: bool = True
    """Whether the report of what killed a job shows, shortened, the segment and what the exception
    says. If not, it shows keys, types and places in the code only."""
    seal_attempts_max: int = 3
    """How often a failing seal (a Spark stage) is run before its error kills the job."""


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """How often frontiers and acks are sent."""

    frontier_interval_s: float = 2.0
    """Period at which an input checkpoints how far its partitions are complete."""
    ack_interval_s: float = 0.005
    """Longest wait of an ack before it is sent; acks are folded meanwhile."""
    retry_delay_s: float = 0.1
    """Rest before the first retry of a segment that a flow condition asks for; it doubles with each
    further one."""
    retry_delay_max_s: float = 60.0
    """Longest such rest."""


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Of windowed tasks, whose state is kept in logs of chunks."""

    url: str = ""
    """Where state is kept: `s3://bucket/prefix` or a directory that all workers of the cluster
    share; empty means `.onyx/state` in `data_dir`."""
    chunk_interval_s: float = 0.1
    """Longest wait of a change before it is made durable; segments are acked after that."""
    chunk_segments_max: int = 100_000
    """Segments whose changes are waiting before they are made durable at once."""
    snapshot_factor: float = 2.0
    """A snapshot is written when the log since the last one is larger than it by this factor."""
    snapshot_bytes_min: int = 67_108_864
    """Size of a log below which no snapshot is written."""
    firings_page_max: int = 10_000
    """Extents of a task that fire on one peer before what they emit is written, when more fire at
    one moment."""
    memory_extents_max: int = 0
    """Extents, each of one group, that a task keeps in memory on one peer; beyond it those used
    least are on the local disk. 0 keeps all in memory."""
    scratch_dir: str = ""
    """Folder on a local disk for them; empty means `onyx-scratch-` and the number of the user in
    the system's temporary folder."""
    group_access: bool = False
    """Let the group of files read state in a directory, and add and remove there, for workers of
    several users; without it only the user who runs the workers may."""


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Log lines, metrics and probes."""

    log_failures: bool = True
    """Whether a worker logs what kills a job. `onyx run` shows it at the end, once."""
    metrics_port: Port | None = None
    """Port of the Prometheus endpoint; 0 takes a free one, None starts none."""
    metrics_host: str = "127.0.0.1"
    """Address on which the Prometheus endpoint listens."""
    metrics_advertise_host: str = ""
    """Address that peers announce for the Prometheus endpoint; empty means the transport's."""
    job_stalled_after_s: float = 15.0
    """A task that has something to do and has not advanced for so long is reported, with why."""
    stalled_after_s: float = 120.0
    """`/livez` fails when a thread has not moved for so long; more than any batch takes."""
    log_level: str = "INFO"
    """`DEBUG`, `INFO`, `WARNING` or `ERROR`."""
    log_format: str = "text"
    """`text` for people, `json` for machines."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process."""

    tenancy_id: str = "default"
    """Separates clusters that share a ZooKeeper."""
    job_scheduler: JobScheduler = "balanced"
    """`balanced`, `greedy` or `percentage`; the first group of a tenancy fixes it for all."""
    modules: tuple[str, ...] = ()
    """Modules whose functions jobs may name; nothing else is ever imported for a job."""
    tags: tuple[str, ...] = ()
    """What this worker's peers can do, matched with `requiredTags`."""
    fn_params: FnParams = field(default_factory=dict, hash=False)
    """Leading arguments of the functions of tasks in any job, as JSON: `{"my-task": [42]}`."""
    data_dir: str = ""
    """Folder from which relative paths in jobs count; empty means the current one."""
    leave_timeout_s: float = 45.0
    """Longest time to leave the cluster after SIGTERM; keep it below a pod's grace period."""
    zookeeper: ZooKeeperSettings = field(default_factory=ZooKeeperSettings)
    zookeeper_server: ZooKeeperServerSettings = field(default_factory=ZooKeeperServerSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    """Between peer groups; on all or on none of a tenancy's workers, with all three files."""
    log: LogSettings = field(default_factory=LogSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    task: TaskSettings = field(default_factory=TaskSettings)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    state: StateSettings = field(default_factory=StateSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)


def from_environment(environment: Mapping[str, str], prefix: str = "ONYX") -> Settings:
    """Settings from variables: `ONYX_TENANCY_ID`, `ONYX_LOG_ENTRY_BYTES_MAX`, ...

    Raises:
        SettingsError: variables do not hold what their settings take; names all of them.
    """
    return read(Settings, environment, prefix)


def to_environment(settings: Settings, prefix: str = "ONYX") -> dict[str, str]:
    """The variables from which `from_environment` reads these settings back."""
    found: dict[str, str] = {}
    for variable, value in _flatten(settings, prefix):
        if isinstance(value, tuple):
            found[variable] = ",".join(value)
        elif isinstance(value, Mapping):
            found[variable] = json.dumps(value)
        elif value is not None:
            found[variable] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def variables(prefix: str = "ONYX") -> tuple[str, ...]:
    """Every variable that `from_environment` looks at."""
    return tuple(variable for variable, _ in _flatten(Settings(), prefix))


def _flatten(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for each in fields(value):
        inner = getattr(value, each.name)
        variable = f"{prefix}_{each.name.upper()}"
        if is_dataclass(inner):
            yield from _flatten(inner, variable)
        else:
            yield variable, inner


def read(cls: type[T], environment: Mapping[str, str], prefix: str, **given: Any) -> T:
    """Settings of any class like those above; fields in `given` are not read.

    Raises:
        SettingsError: variables do not hold what their settings take; names all of them.
    """
    problems: list[str] = []
    found = _read(cls, environment, prefix, problems, given)
    if problems:
        raise SettingsError("\n".join(problems))
    return found


def _read(
    cls: type[T],
    environment: Mapping[str, str],
    prefix: str,
    problems: list[str],
    given: Mapping[str, Any],
) -> T:
    hints = get_type_hints(cls, include_extras=True)
    values = dict(given)
    for each in fields(cls):  # type: ignore[arg-type]
        variable, hint = f"{prefix}_{each.name.upper()}", hints[each.name]
        if each.name in given:
            continue
        if is_dataclass(hint):
            values[each.name] = _read(hints[each.name], environment, variable, problems, {})
        elif variable in environment:
            try:
                values[each.name] = _convert(environment[variable], hint)
            except ValueError as error:
                problems.append(f"{variable}={environment[variable]!r}: {error}")
    return cls(**values)


def _convert(text: str, hint: Any) -> Any:
    value: Any = text
    if get_origin(hint) is tuple:
        value = [part.strip() for part in text.split(",") if part.strip()]
    try:
        if get_origin(hint) is Mapping:
            value = json.loads(text)
        return convert(value, hint, from_text=True)
    except Mismatch as error:
        raise ValueError(_expected(error)) from error
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON: {error}") from error


def _expected(error: Mismatch) -> str:
    """What a variable may hold, in words: everything in a variable is text."""
    if error.given is not None:
        return f"expected {', '.join(error.offered)}"
    words = error.what.partition(", got ")[0]
    for name, word in _WORDS.items():
        words = words.replace(f"`{name}`", word).replace(f"`{name} | null`", word)
    return f"{words} at {error.path}" if error.path else words


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a JSON object",
}
