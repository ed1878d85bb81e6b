"""The ZooKeeper of a cluster on this machine, for the time of a block.

Apart from `local_run`, because `onyx run` launches it before it imports the rest of itself and
checks the job: it starts meanwhile. If the job is refused, it has run for nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onyx.errors import OnyxError
from onyx.log.server.environment import server_for
from onyx.log.server.process import ZooKeeperServer
from onyx.settings import Settings


@contextmanager
def local_server(found: Settings) -> Iterator[ZooKeeperServer]:
    """A server in a folder of its own, both gone at the end. It is launched and may not serve yet:
    whoever waits for it (`environment.env_of`) hears why it does not.

    Raises:
        SettingsError: a setting is wrong, or they are of an ensemble.
    """
    folder = Path(tempfile.mkdtemp(prefix="onyx-run-"))
    try:
        server = server_for(found, folder)
        try:
            with suppress(OnyxError):
                server.launch()
            yield server
        finally:
            # Nothing of it is read again: an orderly end would only take time.
            server.discard()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
