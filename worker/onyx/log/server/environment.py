"""A development environment: a log of one's own, for tests and laptops.

Apart from `api`, because `onyx run` needs no more of that: its peers are other processes.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

import msgspec
from msgspec.structs import replace

from onyx.errors import SettingsError
from onyx.log.local.server import LocalLogServer
from onyx.log.opening import led_to
from onyx.log.server.process import ZooKeeperServer
from onyx.settings import Settings, TlsSettings, ZooKeeperServerSettings
from onyx.telemetry.logs import follow_settings

_folders: set[Path] = set()
"""Temporary ones that are there."""


class Env(msgspec.Struct, frozen=True):
    """A development environment: a log of its own and the settings that lead to it."""

    settings: Settings
    server: LocalLogServer | ZooKeeperServer


def start_env(
    settings: Settings | None = None, data_dir: Path | None = None, durable: bool = True
) -> Env:
    """Start a log of one's own, in a folder of this machine; in a ZooKeeper of one's own, if
    `zookeeper_server` of the settings says anything.

    Args:
        settings: what else holds; what leads to the log is put into those of the result, and a
            place for the state of windows beside its data, unless they say where.
        data_dir: where it keeps its data; without it, and if the settings name no folder, in a
            temporary one.
        durable: whether the log outlives the machine, and not only its processes.

    Raises:
        SettingsError: a setting is wrong, they are of an ensemble, or the folder is in use.
        Unavailable: the server did not come up.
    """
    settings = settings or Settings()
    if settings.zookeeper_server != ZooKeeperServerSettings():
        return env_of(server_for(settings, data_dir), settings)
    follow_settings(settings.telemetry)
    folder = data_dir or _temporary("onyx-log-")
    server = LocalLogServer(folder, durable)
    server.start()
    return Env(led_to(settings, folder), server)


def server_for(settings: Settings, data_dir: Path | None = None) -> ZooKeeperServer:
    """The ZooKeeper that `start_env` starts. Arguments as there.

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
    folder = Path(chosen) if chosen else _temporary("onyx-zookeeper-")
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
    log = replace(settings.log, folder="")
    if settings.zookeeper_server.tls == TlsSettings():
        # Those of `zookeeper` are for a server elsewhere; this one listens on loopback only.
        zookeeper = replace(zookeeper, tls=TlsSettings())
    url = settings.state.url or str((server.data_dir / "state").absolute())
    state = replace(settings.state, url=url)
    return Env(replace(settings, zookeeper=zookeeper, log=log, state=state), server)


def shutdown_env(env: Env) -> None:
    """Stop the server of `start_env`; its data stays, unless that is in a temporary folder."""
    env.server.stop()
    server = env.server
    _remove(server.folder if isinstance(server, LocalLogServer) else server.data_dir)


def _temporary(prefix: str) -> Path:
    """A folder that goes with its environment, or with this process."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    _folders.add(folder)
    atexit.register(_remove, folder)
    return folder


def _remove(folder: Path) -> None:
    if folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
        _folders.discard(folder)
