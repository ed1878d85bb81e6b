"""Several worker processes under one parent: Python has one interpreter lock, so CPU parallelism
comes from processes. A worker that dies is started again, with a growing wait if it keeps dying.
Workers die with the supervisor, even if it is killed. The system ties them to the thread that
started them, so one thread starts, watches and ends them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from onyx.log.server import end_with_parent
from onyx.settings import Settings, to_environment

RESTART_BACK_OFF_S = 0.5
RESTART_BACK_OFF_MAX_S = 10.0
STOP_TIMEOUT_S = 30.0


@dataclass(slots=True)
class _Child:
    peers: int
    process: subprocess.Popen[bytes]
    back_off_s: float = RESTART_BACK_OFF_S


class Supervisor:
    """One child a number of peers in `peers`."""

    def __init__(self, settings: Settings, peers: Sequence[int]) -> None:
        self._environment = {**os.environ, **to_environment(settings)}
        self._environment.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._peers = peers
        self._children: list[_Child] = []
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="onyx-supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Ask every child to leave the cluster; kill what does not in time."""
        self._stopping.set()
        self._thread.join()

    def _end(self) -> None:
        for child in self._children:
            child.process.terminate()
        for child in self._children:
            try:
                child.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()

    def _spawn(self, peers: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "onyx.cli", "worker", "--peers", str(peers)]
        return subprocess.Popen(
            command,
            env=self._environment,
            start_new_session=True,
            preexec_fn=end_with_parent(),
        )

    def _watch(self) -> None:
        self._children = [_Child(peers, self._spawn(peers)) for peers in self._peers]
        self._started.set()
        while not self._stopping.wait(0.1):
            for child in self._children:
                if child.process.poll() is not None and not self._stopping.wait(child.back_off_s):
                    child.back_off_s = min(child.back_off_s * 2, RESTART_BACK_OFF_MAX_S)
                    child.process = self._spawn(child.peers)
        self._end()
