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
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import IO

import msgspec

from onyx.errors import Fenced, Unavailable, UserFunctionError
from onyx.spark.child.request import StageReply, StageRequest
from onyx.spark.session import user_name
from onyx.spark.session.masters import is_local

POLL_INTERVAL_S = 0.5
"""How soon a stage is ended after its incarnation was declared dead."""
STDERR_LINES_MAX = 20
"""Last lines that are kept, for the error when the process dies."""
_MODULE = "onyx.spark.child.run_stage"
_ELSEWHERE = {
    "MASTER",
    "SPARK_API_MODE",
    "SPARK_CONNECT_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_LOCAL_REMOTE",
    "SPARK_REMOTE",
}
"""Variables by which PySpark runs elsewhere than the task says; some it sets by itself."""


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
        env=_environment(request.master, scratch),
    )


def _environment(master: str, scratch: str) -> dict[str, str]:
    """Ours, with a Java that Spark can use and the modules that we can import: the stage's process
    and Spark's own Python workers must find the user's code. Where the stage runs is for the task
    to say: a worker whose user has used Spark Connect would start no other master any more."""
    from onyx.java import java_home_for_spark

    environment = {
        **{name: value for name, value in os.environ.items() if name not in _ELSEWHERE},
        "TMPDIR": scratch,
        "JAVA_HOME": str(java_home_for_spark()),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **user_name.environment(Path(scratch)),
    }
    if is_local(master):  # a machine whose own name does not resolve is no obstacle
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment


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
