"""Checks an OnyxJob that is about to be stored, with the cluster that it names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from onyx.errors import Problem, Unavailable
from onyx_operator.context import OperatorProcess
from onyx_operator.jobs.check import check
from onyx_operator.jobs.logs_of_jobs import cluster_of
from onyx_operator.kube import CLUSTERS, KubeError

CHECK_TIMEOUT_S = 2.0
"""Longest wait for the API server by whoever applies a job."""


class JobChecks:
    """The checks of one operator, for its webhook."""

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator

    async def check(self, body: Mapping[str, Any]) -> tuple[Sequence[Problem], Sequence[Problem]]:
        """Problems and warnings of an OnyxJob that is about to be stored, as far as its namespace
        is known."""
        key = cluster_of(body)
        if not self._operator.clusters.covers(key.namespace):
            return (), ()
        cluster = self._operator.clusters.store.get(key)
        if cluster is None:  # perhaps it has just been made
            with contextlib.suppress(KubeError, Unavailable, TimeoutError):
                async with asyncio.timeout(CHECK_TIMEOUT_S):
                    cluster = await self._operator.kube.get(CLUSTERS, key.namespace, key.name)
        return (), check(body, cluster)
