"""A worker process, as its supervisor starts it: `python -m onyx.processes.worker_process GIVEN`,
or a fork of what has imported this.

Its settings come by variables and the rest as one `Given`. So nothing is imported that reads a
command line for people: that took a tenth of the time that it takes to start.
"""

from __future__ import annotations

import os
import socket
import sys

import msgspec

from onyx.base.seams import SystemClock
from onyx.errors import OnyxError
from onyx.processes.child import NAME, Given, Listeners
from onyx.processes.exit_codes import ExitCode, exit_code_of, exits_with_code
from onyx.processes.freezing import freeze_with
from onyx.processes.programs import name_process
from onyx.processes.running import run_until
from onyx.processes.surroundings import configure_logs, stop_signal
from onyx.processes.worker import Worker
from onyx.settings import from_environment
from onyx.telemetry.recorder import Recorder


def main() -> None:
    """Run what the command line says until SIGTERM, and end with a code that says why."""
    name_process(NAME)
    with exits_with_code():
        _run(msgspec.json.decode(sys.argv[1], type=Given))


def _run(given: Given) -> None:
    """Run the worker.

    Raises:
        OnyxError: why it has given up.
    """
    stop = stop_signal()
    recorder = Recorder(given.recorder, SystemClock())
    code = ExitCode.FAILURE
    try:
        found = from_environment(os.environ)
        configure_logs(found.telemetry, {"tenancy": found.tenancy_id})
        freeze_with(given.supervisor)
        listeners = Listeners(_socket(given.telemetry_socket), _socket(given.http_socket))
        run_until(stop, Worker(found, given.peers, listeners, recorder), found)
        code = ExitCode.SUCCESS
    except OnyxError as error:
        code = exit_code_of(error)
        raise
    finally:
        recorder.ends(code)


def _socket(descriptor: int | None) -> socket.socket | None:
    return None if descriptor is None else socket.socket(fileno=descriptor)


if __name__ == "__main__":
    main()
