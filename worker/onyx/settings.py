"""Settings of a process: nested, frozen classes with one field and its docstring for each setting.

They come from keyword arguments, or from environment variables by `from_environment`:
`ONYX_ZOOKEEPER_ADDRESS` is `zookeeper.address`. A new setting is a new field: its type says what
a variable may hold, and the page of all settings is generated. Limits have their unit in the name.

What is about ZooKeeper, the log that is kept there, and TLS comes first: the rest builds on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from onyx.base.variables import Port, Ports, flatten, read, written

CloseRoot = Literal["alone", "always", "never"]
Compression = Literal["none", "lz4", "zstd"]


class TlsSettings(msgspec.Struct, frozen=True):
    """Certificate files in PEM format, as cert-manager writes them: `ca.crt`, `tls.crt`, `tls.key`.
    Each new connection reads them again, so a renewed certificate needs no restart."""

    ca_file: str = ""
    """Certificates of the authorities that sign those of the other side; empty disables TLS."""
    cert_file: str = ""
    """Certificate of this process, followed by its intermediate certificates."""
    key_file: str = ""
    """Private key of `cert_file`, without a password."""
    server_name: str = ""
    """DNS name that the certificate of the other side must carry, for any address; empty means the
    host name of the address."""


class ZooKeeperSettings(msgspec.Struct, frozen=True):
    """Connections to ZooKeeper."""

    address: str = "127.0.0.1:2181"
    """Connect string, `host:port` separated by commas."""
    session_timeout_s: float = 6.0
    """Session timeout asked of the server, which may negotiate another. A dead group is detected
    after about this time."""
    connect_timeout_s: float = 15.0
    """Longest wait for the first connection."""
    reconnect_back_off_s: Annotated[float, Meta(gt=0)] = 0.05
    """First delay before a lost connection is tried again; it doubles each time, up to
    half a second."""
    tls: TlsSettings = field(default_factory=TlsSettings)
    """TLS to ZooKeeper; `cert_file` and `key_file` only if its servers ask for a certificate."""
    auth_user: str = ""
    """User (digest scheme) who alone may access the data of this tenancy in ZooKeeper; empty means
    that everybody may who reaches ZooKeeper."""
    auth_password_file: str = ""
    """File with the password of `auth_user`."""
    auth_per_tenancy: bool = False
    """Whether each tenancy has an account of its own, which follows from its name and the password
    of `auth_user`, who owns only what is above tenancies. The operator has it so."""
    close_root: CloseRoot = "alone"
    """When a process with `auth_user` closes `/` of ZooKeeper to everybody else, who may make no
    nodes there then: `alone`, if there are only Onyx's; `always`; `never`."""


class ZooKeeperServerSettings(msgspec.Struct, frozen=True):
    """A ZooKeeper server that `onyx zookeeper` runs, and `start_env` if any of these is set; for
    clients they have no meaning."""

    data_dir: str = ""
    """Folder for the data, on a disk that survives the server; empty means `.onyx/zookeeper`, for
    `start_env` a temporary one."""
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for clients on other machines."""
    port: Port | None = None
    """Port for clients; without a value 2181, for `start_env` a free one."""
    servers: tuple[str, ...] = ()
    """Hosts of an ensemble, in the order of their ids; with none or one, it stands alone."""
    id: int | None = None
    """Id of this server, its number in `servers` from 1; by default from its host name:
    `zookeeper-0` is 1."""
    quorum_port: Port = 2888
    """Port on which followers connect to the leader of an ensemble."""
    election_port: Port = 3888
    """Port on which an ensemble elects its leader."""
    formation_port: Port = 4888
    """Port on which the servers of a new ensemble compare their data."""
    heap_mib: int = 256
    """Heap of the Java virtual machine in MiB."""
    tls: TlsSettings = field(default_factory=TlsSettings)
    """TLS for clients and within the ensemble; it asks for certificates. `server_name` has no
    effect: the certificate carries the names of the servers."""


class LogSettings(msgspec.Struct, frozen=True):
    """The log, in ZooKeeper or in a folder of this machine."""

    folder: str = ""
    """Folder of a log of this machine, which `onyx log-server` or `onyx run` serves; it needs no
    ZooKeeper. Time-outs are those of ZooKeeper. Empty: the log is in ZooKeeper."""
    entry_bytes_max: int = 262_144
    """Largest entry, checked before an append (ZooKeeper drops the connection at 1 MiB)."""
    chunk_bytes_max: int = 524_288
    """Largest piece of a content-addressed document; larger documents are split."""
    tenancy_bytes_max: Annotated[int, Meta(ge=1)] = 67_108_864
    """Bytes that a tenancy may hold in ZooKeeper: a job that would not fit is refused when it is
    submitted. ZooKeeper keeps all in memory, so all tenancies together should have less than half
    of its heap."""
    tenancy_jobs_max: Annotated[int, Meta(ge=1)] = 10_000
    """Jobs of a tenancy that run or wait for peers; more are refused when they are submitted."""
    job_peers_max: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Peers that one job may have; a job that needs more is refused when it is submitted, and none
    gets more. 0 sets no limit."""
    job_priority_max: Annotated[int, Meta(ge=0, le=1_000)] = 1_000
    """Highest priority that a job may have; others are refused when they are submitted."""
    poll_interval_s: float = 15.0
    """Interval of polling the log, in case a watch was lost."""
    append_queue_entries_max: int = 1_000
    """Entries in the queue to be written, above which writers wait."""
    join_back_off_s: float = 0.5
    """Mean of the random delay after an aborted join."""


__all__ = [
    "ClientSettings",
    "HistorySettings",
    "HttpSettings",
    "LedgerSettings",
    "LogSettings",
    "Settings",
    "StateSettings",
    "SupervisorSettings",
    "TaskSettings",
    "TelemetrySettings",
    "TlsSettings",
    "TransportSettings",
    "ZooKeeperServerSettings",
    "ZooKeeperSettings",
    "from_environment",
]
"""Public names; the rest is for Onyx itself."""

FnParams = Mapping[str, Sequence[Any]]
JobScheduler = Literal["balanced", "greedy", "percentage"]
JOB_SCHEDULERS: tuple[str, ...] = get_args(JobScheduler)
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
FRAME_OVERHEAD_BYTES = 128
"""Room for the header and checksum of a frame and the fixed fields of a packet."""
FRAME_BYTES_MIN = 2_200_000
"""Room for the largest segment (`codec.refusals.SEGMENT_BYTES_MAX`), its lineage and a header."""


class HistorySettings(msgspec.Struct, frozen=True):
    """How much of the past is kept. The oldest worker of a cluster collects the rest by itself."""

    age_s: Seconds = 86_400.0
    """How long jobs that have completed are kept, with their reports, and entries of the log."""
    killed_age_s: Seconds = 604_800.0
    """How long jobs that were killed are kept, with the state from which another job may upgrade
    them."""
    jobs_max: Count = 1_000
    """Jobs that have ended of which more are not kept, however new; those that completed go
    first."""
    entries_max: Annotated[int, Meta(ge=2)] = 10_000
    """Entries of the log above which the older half goes, however new."""
    remembered_max: Annotated[int, Meta(ge=0, le=1_000_000)] = 10_000
    """The number of collected jobs, the newest ones, of which it stays known that they completed or
    were killed; a job that is submitted again under such an id does not run again."""
    chunk_age_s: Seconds = 3_600.0
    """How long a document that nothing in the log names any more is kept (a job, a list of
    partitions)."""
    interval_s: Seconds = 60.0
    """How often a worker looks what is to be collected; 0: never, which leaves it to `onyx gc`."""
    archive: str = ""
    """A folder, or `s3://bucket/prefix`, in which entries are kept that leave the log, for
    `onyx log` and `onyx replica --at`; empty keeps none. The same for workers and commands."""


class TransportSettings(msgspec.Struct, frozen=True):
    """Segments and acks between peer groups, over gRPC."""

    bind_host: str = "127.0.0.1"
    """Address to listen on."""
    advertise_host: str = ""
    """Address that other groups connect to; empty means `bind_host`."""
    port: Ports = "0"
    """Ports to listen on, such as `7700`, `7700-7709` or `7700,7710-7719`: each process takes the
    first one that is free. 0 takes any free one."""
    frame_bytes_target: int = 262_144
    """Size up to which packets are combined into a frame under load (a gRPC message costs about 300
    us of CPU)."""
    frame_bytes_max: Annotated[int, Meta(ge=FRAME_BYTES_MIN)] = 4_000_000
    """Largest message, at least 2,200,000, so that the largest segment fits; gRPC's own default
    limit is 4 MiB."""
    link_bytes_max: int = 8_388_608
    """Bytes queued or unacknowledged on one link above which the link refuses senders."""
    heartbeat_interval_s: float = 1.0
    """Interval between heartbeats on each stream, in both directions."""
    heartbeat_timeout_s: float = 5.0
    """Time without a message after which a link is considered broken and connects again."""
    reconnect_back_off_s: float = 0.1
    """First delay before a link connects again; it doubles up to 2 s."""
    short_circuit: bool = True
    """Pass batches within one process by reference, without encoding them."""
    compression: Compression = "none"
    """How frames to groups on other machines are compressed: `lz4` or `zstd`, for networks that are
    slower than the processors; `none`. Each process says it for what it sends; what comes is read
    whatever it is. On one machine nothing is compressed."""
    tls_connection_age_max_s: float = 3_600.0
    """Age at which a TLS connection between groups is replaced, to use renewed certificates."""
    tls_client_name: str = ""
    """DNS name in the certificates of clients, which open requests and states and nothing else;
    empty lets in workers alone. It needs `tls.server_name`, by which workers are known."""


class ClientSettings(msgspec.Struct, frozen=True):
    """What a client shows to workers over gRPC: `onyx append`, `onyx state`, an `Appender`."""

    token_file: str = ""
    """File whose first line is the bearer token. It is read again, so a token can be replaced."""
    token_env: str = ""
    """Variable of the client's environment that holds the token."""


class HttpSettings(msgspec.Struct, frozen=True):
    """Requests of clients over HTTP, for inputs with `plugin: http`."""

    port: Port | None = None
    """Port to listen on; 0 takes a free one, without a value nothing listens."""
    bind_host: str = "127.0.0.1"
    """Address to listen on."""
    cert_file: str = ""
    """Certificate of this process, followed by its intermediate certificates, in PEM; empty means
    HTTP without TLS. Each new connection reads changed files."""
    key_file: str = ""
    """Private key of `cert_file`, without a password."""
    client_ca_file: str = ""
    """Certificates of the authorities of clients, which then have to show a certificate; empty
    asks for none."""
    body_bytes_max: Annotated[int, Meta(ge=1)] = 3_500_000
    """Largest body of a request. A little below `transport.frame_bytes_max`: a request may have to
    be handed over to another worker."""
    bodies_bytes_max: Annotated[int, Meta(ge=1)] = 134_217_728
    """Bytes of bodies in memory, above which further requests are answered with 429. One input has
    at most four fifths of them."""
    body_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    """Longest time to send a body."""
    idle_timeout_s: Annotated[float, Meta(gt=0)] = 75.0
    """Time without a request after which a connection is closed; longer than that of a gateway in
    front."""
    connections_max: Annotated[int, Meta(ge=1)] = 1_024
    """Connections at once. For another one, the one that has been idle for the longest is
    closed, of the address with the most."""
    requests_max: Annotated[int, Meta(ge=1)] = 1_024
    """Requests that wait for their answers, above which further ones are answered with 429. One
    input has at most four fifths of them."""


class TaskSettings(msgspec.Struct, frozen=True):
    """Tasks on their peers: queues, restarts, failures."""

    inbox_segments_max: int = 65_536
    """Segments in the inbox of a task above which it refuses senders; a sender in another process
    waits for each batch to be taken unless several have room."""
    inbox_bytes_max: Annotated[int, Meta(ge=1)] = 67_108_864
    """Bytes of these segments, about, above which fewer segments may wait there."""
    memory_share_max: Annotated[float, Meta(gt=0, le=1)] = 0.85
    """Share of the memory that its container may hold (`memory.high`, or its limit), beyond which a
    worker halves the batches of its tasks and what is in flight, again each second, down to a
    sixteenth. 1 disables this."""
    ready_back_off_s: float = 0.1
    """Delay before start_task of a lifecycle is called again."""
    retry_start_interval_s: float = 2.0
    """Delay before a peer restarts as its lifecycle asks; it doubles each time."""
    retry_start_interval_max_s: float = 30.0
    """Longest such delay."""
    restarts_max: int = 5
    """Restarts of a task's peers after which the next failure kills the job."""
    restarts_forgotten_after_s: float = 60.0
    """Time without a failure after which the count of restarts starts again from zero."""
    losses_max: int = 3
    """Worker processes that may die over one segment before it counts as poison."""
    stop_timeout_s: float = 20.0
    """Longest wait for a task to stop before its peer takes another."""
    report_values: bool = True
    """Include the (shortened) segment and the message of the exception in the report of what killed
    a job; otherwise only keys, types and lines of code."""
    table_bytes_max: int = 1_073_741_824
    """Largest table of a job, which each of its worker processes holds in memory; of a partitioned
    one, the largest part. A process of Spark holds no more than this of a partitioned one."""
    seal_attempts_max: int = 3
    """How often a failing seal (such as a Spark stage) is attempted before its error kills the job.
    What cannot be reached is tried for two minutes at least."""


class LedgerSettings(msgspec.Struct, frozen=True):
    """Accounting for segments: acks, frontiers and retries."""

    frontier_interval_s: float = 2.0
    """Interval at which an input checkpoints the frontier of each partition; sooner, up to four
    times a second, when much is complete."""
    ack_interval_s: float = 0.02
    """Longest delay of an ack; acks for the same root are combined meanwhile."""
    retry_delay_s: float = 0.1
    """Delay before the first retry of a segment by a flow condition; it doubles each time."""
    retry_delay_max_s: float = 60.0
    """Longest such delay."""


class StateSettings(msgspec.Struct, frozen=True):
    """State of windowed tasks, which is stored in state logs."""

    url: str = ""
    """Where state is stored: `s3://bucket/prefix`, or a folder that all workers of the cluster
    share; empty means `.onyx/state` in `data_dir`."""
    chunk_interval_s: float = 0.1
    """Longest time until a change of state is durable; only then are its segments acked."""
    chunk_segments_max: int = 100_000
    """Segments with changes that are not durable yet, above which a chunk is written at once."""
    snapshot_factor: float = 2.0
    """A snapshot is written when the log since the last one takes longer to restore by this
    factor."""
    snapshot_bytes_min: int = 67_108_864
    """Size of a log below which no snapshot is written. Beside its bytes a chunk counts as 32 KiB
    and a value as 128 bytes, because small ones take as long to restore."""
    firings_page_max: int = 10_000
    """Extents of a task that fire on one peer before their emissions are written, when more fire at
    once."""
    memory_extents_max: int = 0
    """Extents (each of one group) and entries of maps that a task keeps in memory on one peer; the
    least recently used others are on the local disk. 0 keeps all in memory."""
    unique_keys_max: Annotated[int, Meta(ge=10)] = 100_000
    """Values of `uniquenessKey` that each of the 128 key groups of a task remembers; of more, the
    oldest tenth goes. They are on the local disk if `memory_extents_max` is set."""
    scratch_dir: str = ""
    """Folder on a local disk for these extents; empty means `onyx-scratch-` and the number of the
    user in the system's temporary folder."""
    token_file: str = ""
    """File with the tokens (`Authorization: Bearer ...`) that open the states of all jobs to
    clients, one a line. It is read again when it changes. Empty shows no states over HTTP, and over
    gRPC those without a worker's certificate none, where workers have certificates."""
    group_access: bool = False
    """Let the group of the files read and write state in a folder, for workers of several users;
    otherwise only the user of the worker may."""


class TelemetrySettings(msgspec.Struct, frozen=True):
    """Log lines, metrics and probes."""

    log_failures: bool = True
    """Log what kills a job. `onyx run` shows it at the end, and logs it only if this is given."""
    metrics_port: Port | None = None
    """Port of the Prometheus endpoint; 0 takes a free one, without a value there is none."""
    metrics_host: str = "127.0.0.1"
    """Address on which the Prometheus endpoint listens."""
    metrics_advertise_host: str = ""
    """Address of the Prometheus endpoint that peers announce; empty means that of the transport."""
    job_stalled_after_s: float = 15.0
    """Time without progress after which a task that has work is reported as stalled, with the
    reason."""
    stalled_after_s: float = 120.0
    """Time without progress of a thread after which `/livez` fails; longer than any batch takes."""
    log_level: str = "INFO"
    """`DEBUG`, `INFO`, `WARNING` or `ERROR`."""
    log_format: str = "text"
    """`text` for people, `json` for machines."""
    log_file: str = ""
    """File to which log lines are appended too; it may be moved away, as logrotate does."""
    log_config: str = ""
    """File in JSON for Python's `logging.config.dictConfig`, which adds to the log of Onyx."""


class SupervisorSettings(msgspec.Struct, frozen=True):
    """The supervisor of worker processes, which starts those again that die."""

    memory_kills_max: Annotated[int, Meta(ge=0)] = 3
    """Worker processes that the kernel may kill for want of memory within `memory_kills_within_s`;
    with that many the supervisor ends with code 137. Kills over one segment alone do not count: it
    is given up (`task.losses_max`). 0 disables this."""
    memory_kills_within_s: Annotated[float, Meta(gt=0)] = 600.0
    """Time in which these kills are counted."""
    recorder_folder: str = ""
    """Folder that outlives the container, of this supervisor alone, for what its processes work on
    (72 MiB a process): so that the next one knows of segments over which the whole container was
    killed. Empty: it is kept in memory."""


class Settings(msgspec.Struct, frozen=True):
    """All settings of one process."""

    tenancy_id: str = "default"
    """Separates clusters that share a ZooKeeper."""
    tenancy_owner: str = ""
    """Who has the tenancy: whoever names itself first, and a process that names another one is
    refused. Empty: it is not asked. The operator names the OnyxCluster."""
    job_scheduler: JobScheduler = "balanced"
    """How peers are distributed over jobs: `balanced`, `greedy` or `percentage`. The first group of
    a tenancy fixes it for all."""
    modules: tuple[str, ...] = ()
    """Modules whose functions jobs may name; no other module is imported for a job."""
    tags: tuple[str, ...] = ()
    """Capabilities of this worker's peers, matched with `requiredTags`."""
    spark: bool = True
    """Whether this worker's peers run what needs Spark: they have the tag `spark`, if PySpark is
    installed."""
    fn_params: FnParams = field(default_factory=dict)
    """Leading arguments of the functions of tasks in any job, as JSON: `{"my-task": [42]}`."""
    data_dir: str = ""
    """Folder in which relative paths of jobs start; empty means the current one."""
    job_paths: tuple[str, ...] = ()
    """Folders that jobs may name, with all that is in them; by default `data_dir`."""
    job_variables: tuple[str, ...] = ()
    """Patterns of variables that jobs may name in their options: `JOB_*,SHOP_URL`."""
    spark_master: str = "local[*]"
    """Where Spark runs for tasks that name no master."""
    spark_conf_allowed: tuple[str, ...] = ()
    """Patterns of settings that jobs may set with `sparkConf` beside those that tune Spark, such as
    `spark.jars,spark.eventLog.*`. Whoever may set all (`*`) may run programs as the worker."""
    spark_token_file: str = ""
    """File with the token that the Spark Connect server of `spark_master` wants to see; it is shown
    to no other."""
    leave_timeout_s: float = 45.0
    """Longest time to leave the cluster after SIGTERM; must be shorter than the pod's grace
    period."""
    zookeeper: ZooKeeperSettings = field(default_factory=ZooKeeperSettings)
    zookeeper_server: ZooKeeperServerSettings = field(default_factory=ZooKeeperServerSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    """Between peer groups: with all three files, on all workers of a tenancy or on none."""
    log: LogSettings = field(default_factory=LogSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    task: TaskSettings = field(default_factory=TaskSettings)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    state: StateSettings = field(default_factory=StateSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    supervisor: SupervisorSettings = field(default_factory=SupervisorSettings)

    def of(self, tenancy: str) -> Settings:
        """These settings for a tenancy. Of another tenancy the owner is not asked."""
        owner = self.tenancy_owner if tenancy == self.tenancy_id else ""
        return replace(self, tenancy_id=tenancy, tenancy_owner=owner)

    @property
    def log_place(self) -> str:
        """Where the log is, in words: a folder, or the address of ZooKeeper."""
        return self.log.folder or self.zookeeper.address

    def __hash__(self) -> int:
        """The hash of what distinguishes clusters: `fn_params` cannot be hashed."""
        return hash((self.zookeeper, self.log.folder, self.tenancy_id))


def from_environment(environment: Mapping[str, str], prefix: str = "ONYX") -> Settings:
    """Settings from variables: `ONYX_TENANCY_ID`, `ONYX_LOG_ENTRY_BYTES_MAX`, ...

    Raises:
        SettingsError: variables do not hold what their settings take; names all of them.
    """
    return read(Settings, environment, prefix)


def to_environment(settings: Settings, prefix: str = "ONYX") -> dict[str, str]:
    """The variables from which `from_environment` reads these settings back."""
    return written(settings, prefix)


def variables(prefix: str = "ONYX") -> tuple[str, ...]:
    """Every variable that `from_environment` looks at."""
    return tuple(variable for variable, _ in flatten(Settings(), prefix))
