"""The process of a query: a request on standard input, JSON lines on standard output, everything
that the job or Spark print on standard error.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

import msgspec

from onyx.errors import Unavailable
from onyx.spark.child.serve import die_with
from onyx.spark.query.request import Published, QueryBatch, QueryLine, QueryRequest
from onyx.spark.query.run import answer


def main() -> int:
    """Run one query. The exit code is 0 whenever there is a reply."""
    lines_to = _keep_standard_output()
    asked = sys.stdin.buffer
    request = msgspec.json.decode(asked.readline(), type=QueryRequest)
    if request.parent_pid:
        die_with(request.parent_pid)

    def say(line: QueryLine) -> None:
        lines_to.write(msgspec.json.encode(line) + b"\n")
        lines_to.flush()

    def publish(batch: QueryBatch) -> None:
        say(batch)
        line = asked.readline()
        if not line or msgspec.json.decode(line, type=Published).number != batch.number:
            raise Unavailable("nobody publishes what a micro-batch has staged")

    say(answer(request, say, publish=publish))
    return 0


def _keep_standard_output() -> BinaryIO:
    """Standard output for lines alone; what functions print goes to standard error."""
    kept = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return kept


if __name__ == "__main__":
    code = main()
    # At once: a connection to a server that says nothing would hold the process.
    os._exit(code)
