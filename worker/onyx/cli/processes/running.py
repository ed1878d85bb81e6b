"""Runs a worker, or a supervisor of several, until it is to stop or gives up."""

from __future__ import annotations

import socket
import threading
from typing import Protocol

from onyx.cli.processes.child import Listeners
from onyx.cli.processes.freezing import freeze_with_parent
from onyx.cli.processes.threads import end_within
from onyx.errors import OnyxError, Unavailable
from onyx.recorder import Recorder
from onyx.settings import Settings

STOP_MARGIN_S = 5.0
"""Beyond the time that a worker has for leaving."""


class Running(Protocol):
    """A worker, or a supervisor of several."""

    @property
    def failure(self) -> OnyxError | None:
        """Why it has given up for good; None while it works or tries."""
        ...

    def start(self) -> None:
        """Begin to work."""
        ...

    def stop(self) -> bool:
        """Leave the cluster in an orderly way; False when that took too long."""
        ...


def open_worker(
    found: Settings,
    peers: int,
    recorder: Recorder,
    telemetry_socket: int | None,
    http_socket: int | None,
) -> Running:
    """The worker of this process, which a supervisor has started.

    Args:
        telemetry_socket: descriptor of the socket of the metrics endpoint, if it is given one.
        http_socket: descriptor of the socket for requests over HTTP, if it is given one.
    """
    # The supervisor does without the engine, which is most of the memory of a process.
    from onyx.cli.processes.worker import Worker

    freeze_with_parent()
    listeners = Listeners(_socket(telemetry_socket), _socket(http_socket))
    return Worker(found, peers, listeners, recorder)


def _socket(descriptor: int | None) -> socket.socket | None:
    return None if descriptor is None else socket.socket(fileno=descriptor)


def run_until(stop: threading.Event, running: Running, found: Settings) -> None:
    """Let it work until `stop` is set or it gives up.

    Raises:
        OnyxError: why it has given up.
        Unavailable: it could not leave the cluster in time.
    """
    running.start()
    while running.failure is None and not stop.wait(0.2):
        pass
    failure = running.failure
    if failure is not None:
        end_within(found.leave_timeout_s + STOP_MARGIN_S)
    left = running.stop()
    if failure is not None:
        raise failure
    if not left:
        raise Unavailable(
            f"the worker could not leave the cluster within {found.leave_timeout_s:g} s; others "
            "take over its tasks when its session has expired"
        )
