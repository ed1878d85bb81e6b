"""A worker process: a peer group and its virtual peers, as a supervisor starts them: `python -m
onyx.processes.worker_process GIVEN`, or a fork of what has imported this.

Its settings come by variables and the rest as one `WorkerArguments`. So nothing is imported that
reads a command line for people: that took a tenth of the time that it takes to start.

*Memory* that it has freed it keeps, for the next batch. Batches of columns and frames are some
hundred kB each and live for milliseconds. The allocator of glibc returns what is free at the end of
its heap to the system as soon as that is twice the largest block that was freed. The system clears
each page before it gives it again: 400 us for two frames of 490 kB on the machine where this was
measured, where copying them takes 20 us. Rejected: environment variables of glibc, set by the
supervisor. They would be inherited by whatever user code starts. What the user has set by these
variables holds.

What is free is free for everybody: Arrow takes its memory from the same allocator (its own keeps
tens of MB that nobody else gets), of which all threads share two heaps and not eight a core.

*It freezes when its supervisor is frozen.* SIGSTOP to a worker, by the process id that its user
knows, goes to the supervisor and cannot be passed on. It has to mean the worker nevertheless: its
session expires, and others take over. So the worker looks at the state of its supervisor, which
wakes it after SIGCONT.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import msgspec

from onyx.base.on_demand import OnDemand
from onyx.base.seams import SystemClock
from onyx.errors import OnyxError
from onyx.peer.membership import PeerGroup, open_peer_group
from onyx.processes.child import NAME, Listeners, WorkerArguments
from onyx.processes.ends import ExitCode, exit_code_of, exits_with_code
from onyx.processes.programs import name_process
from onyx.processes.running import ThreadWatch, run_until
from onyx.processes.surroundings import configure_logs, stop_signal
from onyx.settings import Settings, from_environment
from onyx.telemetry.recorder import Recorder
from onyx.user_code.breakpoints import listen_for_breakpoints

if TYPE_CHECKING:
    from onyx.client.served_states import ServedStates
import ctypes
import gc
import signal
import threading
import time

NONE_GIVEN = Listeners()
_SERVED_STATES: OnDemand[type[ServedStates]] = OnDemand("onyx.client.served_states:ServedStates")
KEPT_BYTES_MAX = 16_777_216
"""The bytes of free memory at the end of a heap; several threads share one."""
SYSTEM_FROM_BYTES = 8_388_608
"""Larger blocks are asked from the system one by one, and returned when they are freed."""
HEAPS_MAX = 2
"""Nearly all that allocates much has the lock of the interpreter."""
_OPTIONS = (
    ("MALLOC_TRIM_THRESHOLD_", -1, KEPT_BYTES_MAX),
    ("MALLOC_MMAP_THRESHOLD_", -3, SYSTEM_FROM_BYTES),
    ("MALLOC_ARENA_MAX", -8, HEAPS_MAX),
)
"""Variable of the user, and number of the option in `malloc.h`."""
COLLECTOR_THRESHOLDS = (50_000, 20, 100)
"""Thresholds of the garbage collector: at Python's own 700 each batch is walked several times while
it is young, though segments are trees and freed by reference counts (about a tenth of all CPU)."""
LOOK_INTERVAL_S = 0.1


def main() -> None:
    """Run what the command line says until SIGTERM, and end with a code that says why."""
    name_process(NAME)
    with exits_with_code():
        _run(msgspec.json.decode(sys.argv[1], type=WorkerArguments))


def _run(given: WorkerArguments) -> None:
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
        if found.log.folder:
            listen_for_breakpoints(found.log.folder)
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


class Worker:
    """Start, let it work, stop.

    Args:
        settings: of the process.
        peers: virtual peers.
        listeners: sockets that are not for this process to open. The supervisor serves
            `metrics_port`, which peers announce, and asks at one of them.
        recorder: that the supervisor holds, if there is one.
    """

    def __init__(
        self,
        settings: Settings,
        peers: int,
        listeners: Listeners = NONE_GIVEN,
        recorder: Recorder | None = None,
    ) -> None:
        self._settings = settings
        self._recorder = recorder
        self._peers = peers
        self._listeners = listeners
        self._group: PeerGroup | None = None
        self._threads = ThreadWatch()
        shows = settings.http.port is not None and bool(settings.state.token_file)
        self._states = _SERVED_STATES.load()(settings) if shows else None

    def start(self) -> None:
        """Join the cluster with the virtual peers, for as long as it takes.

        Raises:
            SettingsError: a setting or a module is wrong.
            Unavailable: the endpoint's port is taken.
        """
        tune_collector()
        keep_freed_memory()
        self._threads.start()
        self._group = open_peer_group(
            self._settings,
            recorder=self._recorder,
            http=self._listeners.http,
            telemetry=self._listeners.telemetry,
            states=self._states,
        )
        self._group.add_peers(self._peers)

    @property
    def failure(self) -> OnyxError | None:
        """Why it has given up for good; None while it works or tries."""
        failure = None if self._group is None else self._group.failure
        return failure or self._threads.failure

    def stop(self) -> bool:
        """Leave the cluster in an orderly way; False when that took too long."""
        left = self._group is None or self._group.stop()
        if self._states is not None:
            self._states.close()
        self._threads.stop()
        return left


def keep_freed_memory() -> None:
    """Have the allocator keep what is freed, from now on in this process; without effect where it
    is not that of glibc."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    for variable, option, size in _OPTIONS:
        if variable not in os.environ:
            library.mallopt(option, size)


def tune_collector() -> None:
    """What exists now lives as long as the process; segments need few collections."""
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def freeze_with(supervisor: int) -> None:
    """Look from now on, on a thread of its own; nothing where there is no /proc."""
    if _state(supervisor):
        threading.Thread(
            target=_watch, args=(supervisor,), name="onyx-freezing", daemon=True
        ).start()


def _watch(supervisor: int) -> None:
    while True:
        time.sleep(LOOK_INTERVAL_S)
        if _state(supervisor) == "T":
            os.kill(os.getpid(), signal.SIGSTOP)


def _state(process: int) -> str:
    """The letter that the kernel has for it; empty when there is none."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


if __name__ == "__main__":
    main()
