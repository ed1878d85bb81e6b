"""A whole cluster on this machine for the time of a block: ZooKeeper and worker processes."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.log.server.environment import start_env
from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import takes_requests
from onyx.processes.child import worker_environment
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
    found: Settings, peers: list[int], launcher: Launcher | None = None
) -> Iterator[tuple[Client, Supervisor, Settings]]:
    """ZooKeeper and workers, and what leads to them; all gone at the end. What starts the workers
    belongs to the caller, or is there for this cluster."""
    with ExitStack() as stack:
        if launcher is None:  # beside the start of ZooKeeper it imports what workers need
            launcher = stack.enter_context(closing(Launcher(worker_environment(found))))
        folder = Path(tempfile.mkdtemp(prefix="onyx-run-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        env = start_env(found, folder)
        # Nothing of this cluster is read again: an orderly end of ZooKeeper would only take time.
        stack.callback(env.server.discard)
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
