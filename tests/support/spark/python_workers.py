"""Spark's Python workers without their imports: a process that has imported what they need, and
forks the daemon of each `SparkContext` of a lent JVM.

Spark starts a daemon for each context, which forks workers, and each of these imports PyArrow,
pandas and Onyx for a second of CPU: more than a small job takes otherwise. The daemon that Spark
starts here is `daemon/forked_daemon`: it hands over its streams, its environment and its arguments,
and waits until the daemon that is forked for it has ended. Code of users is imported after the
fork, from where the environment says.

PySpark itself imports PyArrow in workers only, because it starts a thread: that is the allocator's,
which prepares for forks.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark.daemon

NEEDED = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.plan_data_source_read",
    "onyx.spark_query.fragment",
)
"""Imported before the fork."""
ALLOCATORS = {"jemalloc_bg_thd"}
REQUEST_BYTES_MAX = 1 << 20


def serve(place: Path) -> None:
    """Fork daemons until this process is killed."""
    for name in NEEDED:
        importlib.import_module(name)
    assert _threads() <= ALLOCATORS, f"a thread would be missing after a fork: {_threads()}"
    sys.path[:] = [each for each in sys.path if each and Path(each) != Path(__file__).parent]
    listener = socket.socket(socket.AF_UNIX)
    new = place.with_suffix(".new")
    listener.bind(str(new))
    listener.listen()
    new.rename(place)
    gc.freeze()
    while True:
        asked, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _become_daemon(asked)
        asked.close()
        _reap()


def _become_daemon(asked: socket.socket) -> None:
    _, streams, _, _ = socket.recv_fds(asked, 1, 3)
    with asked.makefile("rb") as file:
        wanted: dict[str, Any] = json.loads(file.readline(REQUEST_BYTES_MAX))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv[:] = wanted["arguments"]
    sys.path[:0] = [wanted["folder"], *filter(None, os.environ["PYTHONPATH"].split(os.pathsep))]
    importlib.invalidate_caches()
    random.seed()
    tempfile.tempdir = None  # the environment may say another one
    # As `python -m pyspark.daemon` has it: the source looks whether its process is one of Spark.
    sys.modules["__main__"].__spec__ = pyspark.daemon.__spec__
    pyspark.daemon.manager()


def _threads() -> set[str]:
    """Beside the main one."""
    tasks = Path("/proc/self/task").iterdir()
    return {(each / "comm").read_text().strip() for each in tasks if int(each.name) != os.getpid()}


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
