"""A whole cluster on this machine for the time of a block: ZooKeeper and worker processes."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onyx.cli.processes.supervisor import Supervisor
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.log.server.environment import start_env
from onyx.settings import Settings

INTERRUPTED_PATIENCE_S = 2.0
"""For workers to leave when the run is given up: a function that hangs does not come back."""


@contextmanager
def local_cluster(found: Settings, peers: list[int]) -> Iterator[tuple[Client, Supervisor, str]]:
    """ZooKeeper and workers, and the address of ZooKeeper; all gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="onyx-run-"))
    env = start_env(found, folder)
    workers = Supervisor(env.settings, peers)
    patience_s = None
    try:
        workers.start()
        with connect(env.settings) as client:
            yield client, workers, env.settings.zookeeper.address
    except BaseException:
        patience_s = INTERRUPTED_PATIENCE_S
        raise
    finally:
        workers.stop(patience_s, lambda what: print(what, file=sys.stderr, flush=True))
        # Nothing of this cluster is read again: an orderly end of ZooKeeper would only take time.
        env.server.kill()
        shutil.rmtree(folder, ignore_errors=True)
