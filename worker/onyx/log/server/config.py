"""The configuration of a ZooKeeper server as text, and a server's number in its ensemble: all pure.

All servers of an ensemble have the same list of hosts. Each finds its number in it by the number at
the end of its host's name, as a StatefulSet gives it. Dynamic reconfiguration was rejected: these
ensembles are restarted to be changed, and the server would overwrite the configuration that is
written here. `formation` protects the data when the list changes.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from onyx.errors import SettingsError
from onyx.settings import ZooKeeperServerSettings

SESSION_TIMEOUT_MAX_MS = 60_000
INIT_TIMEOUT_MS = 20_000
"""Longest time for a follower to fetch what it lacks from a leader that was just elected."""
SYNC_TIMEOUT_MS = 5_000
"""A follower that has not heard from the leader for so long, or the other way round, gives up."""
SERVERS_MAX = 7
COMMANDS = "srvr,ruok,mntr"
"""Four-letter commands that are answered; none reads or changes data."""

KEY_STORE, TRUST_STORE = "key.pem", "ca.pem"
"""Key in PKCS#8 with its certificate, and the authorities."""

_SERVER = re.compile(
    r"(?P<host>[A-Za-z0-9_.-]+)"
    r"(:(?P<quorum>\d{1,5}):(?P<election>\d{1,5})(:(?P<formation>\d{1,5}))?)?"
)
_NUMBERED = re.compile(r"-(\d{1,3})$")


class Ensemble(msgspec.Struct, frozen=True):
    """Which server this is, and all of them."""

    id: int
    """From 1: the index in `servers`."""
    servers: tuple[str, ...]
    """`host:quorum port:election port` of each."""
    formation: tuple[tuple[str, int], ...] = ()
    """Where each answers what its folder holds; empty for a server that is started by hand."""


class ServerConfig(msgspec.Struct, frozen=True):
    """What one server is started with."""

    data_dir: Path
    """Absolute."""
    host: str
    """Interface to listen on, for clients and the other servers."""
    port: int
    tick_ms: int
    """Unit of time; the shortest session is two ticks."""
    ensemble: Ensemble | None = None
    """None: it stands alone."""
    stores: Path | None = None
    """Folder with the files for TLS; None: no TLS."""

    def text(self) -> str:
        """The file `zoo.cfg`."""
        lines = [
            f"tickTime={self.tick_ms}",
            f"dataDir={self.data_dir}",
            *self._client_lines(),
            f"maxSessionTimeout={SESSION_TIMEOUT_MAX_MS}",
            "maxClientCnxns=0",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
            "admin.enableServer=false",
            f"4lw.commands.whitelist={COMMANDS}",
        ]
        return "\n".join([*lines, *self._ensemble_lines(), ""])

    def _client_lines(self) -> list[str]:
        if self.stores is None:
            return [f"clientPort={self.port}", f"clientPortAddress={self.host}"]
        return [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"secureClientPort={self.port}",
            f"secureClientPortAddress={self.host}",
            "client.certReload=true",
            *self._tls_lines("ssl", self.stores),
        ]

    def _tls_lines(self, prefix: str, stores: Path) -> list[str]:
        return [
            f"{prefix}.keyStore.location={stores / KEY_STORE}",
            f"{prefix}.keyStore.type=PEM",
            f"{prefix}.trustStore.location={stores / TRUST_STORE}",
            f"{prefix}.trustStore.type=PEM",
            f"{prefix}.enabledProtocols=TLSv1.3,TLSv1.2",
            f"{prefix}.clientAuth=need",
            # Who dials proves itself by its certificate; the address of a pod is in none.
            f"{prefix}.clientHostnameVerification=false",
        ]

    def _ensemble_lines(self) -> list[str]:
        if self.ensemble is None:
            return []
        everywhere = "true" if self.host in ("0.0.0.0", "::") else "false"  # noqa: S104
        return [
            f"initLimit={max(2, INIT_TIMEOUT_MS // self.tick_ms)}",
            f"syncLimit={max(2, SYNC_TIMEOUT_MS // self.tick_ms)}",
            f"quorumListenOnAllIPs={everywhere}",
            *self._quorum_lines(),
            *(f"server.{id}={each}" for id, each in enumerate(self.ensemble.servers, start=1)),
        ]

    def _quorum_lines(self) -> list[str]:
        if self.stores is None:
            return []
        reload = "sslQuorumReloadCertFiles=true"
        return ["sslQuorum=true", reload, *self._tls_lines("ssl.quorum", self.stores)]


def ensemble_of(settings: ZooKeeperServerSettings, host_name: str) -> Ensemble | None:
    """The ensemble that the settings describe; None for a server that stands alone.

    Args:
        settings: of the server.
        host_name: of this machine or pod.

    Raises:
        SettingsError: a server is not `host` or `host:port:port`, their number makes no sense, or
            it is not known which of them this is.
    """
    count = len(settings.servers)
    if count <= 1:
        _check_alone(settings, host_name)
        return None
    if count == 2 or count > SERVERS_MAX:
        raise SettingsError(
            f"zookeeper_server.servers names {count} servers: use 1, 3 or 5; an ensemble works "
            "while more than half of them do, so two are worse than one"
        )
    found = [_server(each) for each in settings.servers]
    servers = tuple(
        f"{each['host']}:{each['quorum'] or settings.quorum_port}"
        f":{each['election'] or settings.election_port}"
        for each in found
    )
    formation = tuple(
        (each["host"], int(each["formation"] or settings.formation_port)) for each in found
    )
    id = settings.id if settings.id is not None else _ordinal(host_name) + 1
    if not 1 <= id <= count:
        raise SettingsError(
            f"this is ZooKeeper server {id}, and zookeeper_server.servers names {count}: "
            "correct ONYX_ZOOKEEPER_SERVER_SERVERS or ONYX_ZOOKEEPER_SERVER_ID"
        )
    return Ensemble(id, servers, formation)


def _check_alone(settings: ZooKeeperServerSettings, host_name: str) -> None:
    """The second pod of a set that was scaled by hand would be a second, empty ZooKeeper."""
    found = _NUMBERED.search(host_name.partition(".")[0])
    if settings.servers and settings.id is None and found is not None and int(found[1]):
        raise SettingsError(
            f"this is ZooKeeper server {int(found[1]) + 1} by its host's name {host_name!r}, and "
            "zookeeper_server.servers names 1: servers that do not know each other have different "
            "data. The number of servers is changed by their list"
        )


def _server(text: str) -> re.Match[str]:
    found = _SERVER.fullmatch(text)
    if found is None:
        raise SettingsError(
            f"zookeeper_server.servers: {text!r} is no server; expected a host name, or "
            "host:quorum port:election port, or these and :formation port"
        )
    return found


def _ordinal(host_name: str) -> int:
    """2 of `zookeeper-2` and of `zookeeper-2.zookeeper.default.svc`."""
    found = _NUMBERED.search(host_name.partition(".")[0])
    if found is None:
        raise SettingsError(
            f"which of zookeeper_server.servers is this? The host name {host_name!r} does not end "
            "with a number, as in zookeeper-0: set ONYX_ZOOKEEPER_SERVER_ID, from 1"
        )
    return int(found[1])
