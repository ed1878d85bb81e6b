"""The process of a query as it is, but for Spark: frames and stages of `support.spark_query`.

`python frames_query.py` reads a request and replies as `onyx.spark.query` does.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

COMMAND = (sys.executable, __file__)


def run() -> int:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.support.spark_query import Frames, run_on_pandas

    from onyx.spark.query import __main__ as process
    from onyx.spark.query.run import answer

    process.answer = partial(  # type: ignore[assignment]
        answer, open_spark=lambda _: Frames(), run_middle=run_on_pandas
    )
    return process.main()


if __name__ == "__main__":
    sys.exit(run())
