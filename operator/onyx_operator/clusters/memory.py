"""Memory of a worker's container: what its owner gives the worker, and what Spark takes beside it.

Stages, windows and jobs on Spark run in processes beside the worker, in the same container. Whoever
says how much a worker needs does not think of them, and a JVM that appears hours later would have
the container killed. So its memory is added to both, request and limit, where these name memory.
Rejected: to add it to the limit alone. A node would promise the same memory to several workers, and
evict one of them in the middle of a stage.

A cluster that says nothing of Spark runs none: most jobs need none, and the image of workers has
none either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from onyx.model.cluster import Cluster
from onyx.model.keys.kubernetes import amount_of
from onyx.submission.spark_pods import WITH_JVM, workers_run_spark

WITHOUT_JVM = "512Mi"
"""The child and the driver of a job are clients of a Spark Connect server: Python and Arrow."""
_MEBIBYTE = 1 << 20


def spark_memory(cluster: Cluster) -> int | str:
    """What Spark takes beside a worker of a cluster; 0 if it runs none."""
    if not workers_run_spark(cluster):
        return 0
    if cluster.spark_memory is not None:
        return cluster.spark_memory
    return WITH_JVM if cluster.spark is None else WITHOUT_JVM


def with_spark(amounts: Mapping[str, int | str], more: int | str) -> dict[str, int | str]:
    """Requests or limits with the memory of Spark added to theirs, if they name any."""
    found = dict(amounts)
    if "memory" in found and amount_of(more):
        total = math.ceil(amount_of(found["memory"]) + amount_of(more))
        whole, rest = divmod(total, _MEBIBYTE)
        found["memory"] = str(total) if rest else f"{whole}Mi"
    return found
