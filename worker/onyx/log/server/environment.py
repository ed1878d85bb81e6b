"""A development environment: a ZooKeeper server of one's own, for tests and laptops.

Apart from `api`, because `onyx run` needs no more of that: its peers are other processes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from msgspec.structs import replace

from onyx.errors import SettingsError
from onyx.log.server.process import ZooKeeperServer
from onyx.settings import Settings, TlsSettings
from onyx.telemetry.logs import follow_settings


class Env(msgspec.Struct, frozen=True):
    """A development environment: an embedded ZooKeeper and the settings that lead to it."""

    settings: Settings
    server: ZooKeeperServer


def start_env(settings: Settings | None = None, data_dir: Path | None = None) -> Env:
    """Start a ZooKeeper server of one's own, as `zookeeper_server` of the settings says.

    Args:
        settings: what else holds; the address of the server is put into those of the result, and a
            place for the state of windows beside its data, unless they say where.
        data_dir: where it keeps its data, instead of the folder that the settings name; without
            either in a temporary one.

    Raises:
        SettingsError: a setting is wrong, or they are of an ensemble.
        Unavailable: the server did not come up.
    """
    settings = settings or Settings()
    return env_of(server_for(settings, data_dir), settings)


def server_for(settings: Settings, data_dir: Path | None = None) -> ZooKeeperServer:
    """The server that `start_env` starts. Arguments as there.

    Raises:
        SettingsError: a setting is wrong, or they are of an ensemble.
    """
    wanted = settings.zookeeper_server
    if len(wanted.servers) > 1:
        raise SettingsError(
            f"zookeeper_server.servers names {len(wanted.servers)} servers, and start_env starts "
            "one: leave it out, or start each with `onyx zookeeper`"
        )
    chosen = data_dir or wanted.data_dir
    folder = Path(chosen or tempfile.mkdtemp(prefix="onyx-zookeeper-"))
    return ZooKeeperServer(
        folder, wanted.port or 0, host=wanted.host, heap_mib=wanted.heap_mib, tls=wanted.tls
    )


def env_of(server: ZooKeeperServer, settings: Settings) -> Env:
    """Wait until a server serves, which is started if it was not, and lead to it.

    Raises:
        SettingsError: its folder cannot be written.
        Unavailable: it did not come up.
    """
    follow_settings(settings.telemetry)
    server.start()
    zookeeper = replace(settings.zookeeper, address=server.address)
    if settings.zookeeper_server.tls == TlsSettings():
        # Those of `zookeeper` are for a server elsewhere; this one listens on loopback only.
        zookeeper = replace(zookeeper, tls=TlsSettings())
    url = settings.state.url or str((server.data_dir / "state").absolute())
    state = replace(settings.state, url=url)
    return Env(replace(settings, zookeeper=zookeeper, state=state), server)


def shutdown_env(env: Env) -> None:
    """Stop the ZooKeeper server of `start_env`; its data stays."""
    env.server.stop()
