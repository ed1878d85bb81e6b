"""A whole cluster on this machine for the time of a block: ZooKeeper and worker processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import quote

from onyx.cli.local_server import local_server
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.log.server.environment import env_of
from onyx.log.server.process import ZooKeeperServer
from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import takes_requests
from onyx.processes.child import worker_launcher
from onyx.processes.forking import Launcher
from onyx.processes.supervisor import Supervisor
from onyx.settings import Settings

HTTP = "http"
"""The plugin of inputs that take requests over HTTP."""
TOKEN_OPTIONS = {"tokenFile", "tokenEnv"}
INTERRUPTED_PATIENCE_S = 2.0
"""For workers to leave when the run is given up: a function that hangs does not come back."""


@contextmanager
def local_cluster(
    found: Settings,
    peers: list[int],
    launcher: Launcher | None = None,
    server: ZooKeeperServer | None = None,
) -> Iterator[tuple[Client, Supervisor, Settings]]:
    """ZooKeeper and workers, and what leads to them; all gone at the end.

    Args:
        found: settings of all.
        peers: of each worker process.
        launcher: what starts the workers, which belongs to the caller; one for this cluster, if
            None.
        server: a ZooKeeper in the same way (`local_server`).
    """
    with ExitStack() as stack:
        if launcher is None:  # beside the start of ZooKeeper it imports what workers need
            launcher = stack.enter_context(closing(worker_launcher(found)))
        if server is None:
            server = stack.enter_context(local_server(found))
        env = env_of(server, found)
        workers = Supervisor(env.settings, peers, launcher)
        patience_s = None
        try:
            workers.start()
            with connect(env.settings) as client:
                yield client, workers, env.settings
        except BaseException:
            patience_s = INTERRUPTED_PATIENCE_S
            raise
        finally:
            workers.stop(patience_s, lambda what: print(what, file=sys.stderr, flush=True))


def ways_in(job: Job, settings: Settings, http_port: int | None) -> str:
    """How to hand segments to a job that runs, a line for each input that takes some."""
    return "".join(
        f"to hand segments to {entry.name}: {_way_in(job, entry, settings, http_port)}\n"
        for entry in job.catalog
        if takes_requests(entry.type, entry.plugin)
    )


def _way_in(job: Job, entry: CatalogEntry, settings: Settings, http_port: int | None) -> str:
    if entry.plugin != HTTP or http_port is None:
        there = f"--zookeeper {settings.zookeeper.address} --tenancy {settings.tenancy_id}"
        secret = " --token-file FILE" if entry.options.keys() & TOKEN_OPTIONS else ""
        return f"onyx append {job.name} {entry.name} {there}{secret}"
    url = f"http://127.0.0.1:{http_port}/jobs/{quote(job.name, '')}/{quote(entry.name, '')}"
    token = " -H 'Authorization: Bearer TOKEN'" if entry.options.keys() & TOKEN_OPTIONS else ""
    return f"curl {url} -H 'Content-Type: application/json'{token} -d '{{...}}'"
