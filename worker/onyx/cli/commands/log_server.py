"""`onyx log-server`: the log of a cluster on this machine, in a folder, without ZooKeeper.

`onyx run` serves one for its own job. This one is for workers that are started by hand, and for
commands: all of them find it by the folder (`--log`, `ONYX_LOG_FOLDER`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from onyx.cli.command_line import Argument
from onyx.log.local.server import LocalLogServer
from onyx.processes.surroundings import configure_logs, settings, stop_signal

LOOK_S = 0.5


def log_server(
    folder: Annotated[
        Path, Argument("Folder of the log; it is made if it is not there.", metavar="FOLDER")
    ],
) -> None:
    """Serve the log of a cluster on this machine until SIGTERM; no ZooKeeper is needed.

    Workers, commands and programs of the same user find it by its folder: with --log FOLDER, or
    ONYX_LOG_FOLDER. It is killed and started again without harm to jobs.
    """
    stop = stop_signal()
    configure_logs(settings().telemetry)
    with LocalLogServer(folder) as server:
        print(f"the log in {folder} is served", flush=True)
        while not stop.wait(LOOK_S):
            server.check()
