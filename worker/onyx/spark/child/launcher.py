"""Runs a stage in a process of its own and waits for it, no longer than allowed.

The process is started by the thread that waits: the kernel kills it when that thread ends, so a
killed worker takes its stage along, JVM included.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from tempfile import TemporaryDirectory
from threading import Thread
from typing import IO

import msgspec

from onyx.errors import Fenced, Unavailable, UserFunctionError
from onyx.spark.child.environment import environment
from onyx.spark.child.request import StageReply, StageRequest

POLL_INTERVAL_S = 0.5
"""How soon a stage is ended after its incarnation was declared dead."""
STDERR_LINES_MAX = 20
"""Last lines that are kept, for the error when the process dies."""
_MODULE = "onyx.spark.child.run_stage"


def run_in_process(request: StageRequest, timeout_s: float, wanted: Callable[[], bool]) -> None:
    """See `StageRunner`."""
    request = msgspec.structs.replace(request, parent_pid=os.getpid())
    # Spark's scratch files lie here, so that they go even when its process is killed.
    with TemporaryDirectory(prefix="onyx-stage-") as scratch, _started(request, scratch) as process:
        assert process.stderr
        tail: deque[str] = deque(maxlen=STDERR_LINES_MAX)
        reader = Thread(target=_drain, args=(process.stderr, tail), daemon=True)
        reader.start()
        try:
            output = _converse(process, msgspec.json.encode(request), timeout_s, wanted)
        finally:
            _end(process)
        reader.join(POLL_INTERVAL_S)
    _judge(request, output, process.returncode, tail)


def _started(request: StageRequest, scratch: str) -> subprocess.Popen[bytes]:
    """A session of its own, so that it and its children can be ended together."""
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=environment(request.master, scratch),
    )


def _converse(
    process: subprocess.Popen[bytes],
    request: bytes,
    timeout_s: float,
    wanted: Callable[[], bool],
) -> bytes:
    """Send the request and wait for the reply, looking up now and then."""
    assert process.stdin
    assert process.stdout
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(request)
    waited_s = 0.0
    while True:
        try:
            process.wait(POLL_INTERVAL_S)
            break
        except subprocess.TimeoutExpired:
            waited_s += POLL_INTERVAL_S
        if not wanted():
            raise Fenced("this worker was declared dead while its Spark stage ran")
        if waited_s >= timeout_s:
            raise UserFunctionError(
                f"the stage did not end within {timeout_s:g} s; raise `stageTimeout` if it needs "
                "longer"
            )
    return process.stdout.read()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and of those it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _drain(stream: IO[bytes], tail: deque[str]) -> None:
    for line in stream:
        tail.append(line.decode("utf-8", "replace").rstrip())


def _judge(request: StageRequest, output: bytes, code: int, tail: deque[str]) -> None:
    """Nothing when the stage ended well, otherwise the error of its reply."""
    try:
        reply = msgspec.json.decode(output, type=StageReply)
    except msgspec.DecodeError as error:
        last = "\n  ".join(tail) or "nothing"
        raise Unavailable(
            f"the process of stage {request.stage} ended with code {code} and no reply; "
            f"its last lines:\n  {last}"
        ) from error
    if reply.failure is None:
        return
    if reply.failure.by_user:
        raise UserFunctionError(reply.failure.message)
    raise Unavailable(reply.failure.message)
