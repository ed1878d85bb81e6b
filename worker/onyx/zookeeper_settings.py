"""The part of the settings that is about ZooKeeper and what the log keeps there, and TLS.

A module of its own for its size: `settings` has the rest, and the names of these too.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from onyx.variables import Port

CloseRoot = Literal["alone", "always", "never"]


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
    """A ZooKeeper server that `onyx zookeeper` or `start_env` runs; clients do not read these."""

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
    """The log in ZooKeeper."""

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
    poll_interval_s: float = 15.0
    """Interval of polling the log, in case a watch was lost."""
    append_queue_entries_max: int = 1_000
    """Entries in the queue to be written, above which writers wait."""
    join_back_off_s: float = 0.5
    """Mean of the random delay after an aborted join."""
