"""The process of a query as it is, but for Spark: frames and stages of `support.spark_query`.

`python frames_query.py` reads a request and replies as `onyx.spark_query` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

COMMAND = (sys.executable, __file__)


def run() -> int:
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from tests.support.spark.query import Frames, run_on_pandas

    from onyx.spark.driver.request import QueryReply, QueryRequest
    from onyx.spark_query import __main__ as process
    from onyx.spark_query import run as query

    answer = query.answer

    def without_spark(request: QueryRequest, say: query.Say, *_: object) -> QueryReply:
        return answer(request, say, lambda _: Frames(), run_middle=run_on_pandas)

    process.begin = lambda _: None
    query.answer = without_spark  # type: ignore[assignment]
    return process.main()


if __name__ == "__main__":
    sys.exit(run())
