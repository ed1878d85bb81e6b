"""The process of a query: a request on standard input, JSON lines on standard output, everything
that the job or Spark print on standard error.

SIGTERM ends what it has begun at a Connect server, which would go on there and keep executors busy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from threading import Thread
from typing import Any, BinaryIO

import msgspec

from onyx.base.parent import die_with
from onyx.errors import Unavailable
from onyx.spark.driver.request import Published, QueryBatch, QueryLine, QueryRequest
from onyx.spark.session.masters import is_connect
from onyx.spark_query.session import begin, opened


def main() -> int:
    """Run one query. The exit code is 0 whenever there is a reply."""
    lines_to = _keep_standard_output()
    asked = sys.stdin.buffer
    request = msgspec.json.decode(asked.readline(), type=QueryRequest)
    if request.parent_pid:
        die_with(request.parent_pid)
    begin(request)
    from onyx.spark_query.run import answer  # while the JVM starts

    def say(line: QueryLine) -> None:
        lines_to.write(msgspec.json.encode(line) + b"\n")
        lines_to.flush()

    def publish(batch: QueryBatch) -> None:
        say(batch)
        line = asked.readline()
        if not line or msgspec.json.decode(line, type=Published).number != batch.number:
            raise Unavailable("nobody publishes what a micro-batch has staged")

    say(answer(request, say, _opened, publish))
    return 0


def _opened(request: QueryRequest) -> Any:
    """A session whose operations end with SIGTERM."""
    spark = opened(request)
    if is_connect(request.master):
        # A call from within the handler would wait for locks of the one that it has interrupted.
        cancel = Thread(target=_cancel, args=[spark], daemon=True)
        signal.signal(signal.SIGTERM, lambda *_: cancel.start())
    return spark


def _cancel(spark: Any) -> None:
    with contextlib.suppress(Exception):
        spark.interruptAll()
    os._exit(128 + signal.SIGTERM)


def _keep_standard_output() -> BinaryIO:
    """Standard output for lines alone; what functions print goes to standard error."""
    kept = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return kept


if __name__ == "__main__":
    code = main()
    # At once: a connection to a server that says nothing would hold the process.
    os._exit(code)
