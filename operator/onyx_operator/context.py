"""What all parts share: settings, the edges, what is known of our kinds, metrics, liveness."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from msgspec import field

from onyx.client.submissions import Check
from onyx.log.interface import ClientLog
from onyx.settings import Settings
from onyx_operator.authors import Authors
from onyx_operator.informers.informer import Informer
from onyx_operator.kube import Kube
from onyx_operator.liveness import OperatorLiveness
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import OperatorSettings
from onyx_operator.tenancies import Tenancies

logger = logging.getLogger(__name__)


class OperatorProcess(msgspec.Struct, frozen=True):
    """One operator process. All of it belongs to one event loop."""

    settings: OperatorSettings
    kube: Kube
    metrics: OperatorMetrics
    liveness: OperatorLiveness
    jobs: Informer
    """All OnyxJobs."""
    clusters: Informer
    """All OnyxClusters."""
    tenancies: Tenancies
    connect: Callable[[Settings], ClientLog]
    """Opens the log of a cluster. Blocks; raises Unavailable when no ZooKeeper answers."""
    authors: Authors
    """Who changes and deletes objects."""
    checks: Sequence[Check] = ()
    """What is checked of a job besides what its manifest says."""
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what nothing waits for; it ends with the event loop."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a bug in the operator", exc_info=task.exception())
