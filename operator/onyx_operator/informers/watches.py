"""The watches of all namespaces that the operator looks after, each with a life of its own.

A namespace is listed first, clusters before jobs, and only then watched: nothing is judged by half
of what there is. What the API server refuses in one namespace (its Role is gone, or it is) is tried
again there with waits that double, and the others know nothing of it. Namespaces are named, or all,
or chosen by a label; then they come and go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import chain, repeat

from onyx.errors import Unavailable
from onyx_operator.api_client import Configuration
from onyx_operator.informers.cell import ALL, Cell
from onyx_operator.informers.informer import Informer
from onyx_operator.kube import NAMESPACES, Kube, KubeError, Object, Resource
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import OperatorSettings

logger = logging.getLogger(__name__)

NAMESPACES_EVERY_S = 5.0
"""So often the namespaces with the labels are listed."""
RETRY_MAX_S = 20.0
"""Longest wait before a namespace is tried again; below the time after which `/livez` fails."""
FIRST_LISTS_S = (1.0, 5.0)
"""Waits before the first lists beside a watch that has begun."""
Relay = Callable[[Object], None]


class NamespaceWatches:
    """The watches of all scopes. Belongs to one event loop.

    Args:
        informers: in the order in which a namespace is listed.
        relays: kinds that are only watched: with the label selector, and who is called.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        configuration: Configuration,
        kube: Kube,
        metrics: OperatorMetrics,
        informers: Sequence[Informer],
        relays: Sequence[tuple[Resource, str, Relay]],
    ) -> None:
        self._settings, self._configuration = settings, configuration
        self._kube, self._metrics = kube, metrics
        self._informers = {each.resource: each for each in informers}
        self._relays = {resource: relay for resource, _, relay in relays}
        self._watched = [(each.resource, "") for each in informers]
        self._watched += [(resource, labels) for resource, labels, _ in relays]
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, str] = {}
        """By scope, why it is not watched now."""

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await self._adjust()
                if not self._settings.namespace_labels:
                    await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
                else:
                    await asyncio.sleep(NAMESPACES_EVERY_S)
        finally:
            await self._end(list(self._tasks))

    async def _adjust(self) -> None:
        """Begin with namespaces that have come, leave those that are gone."""
        for task in self._tasks.values():
            if task.done():
                task.result()
        wanted = await self._scopes()
        gone = [scope for scope in self._tasks if scope not in wanted]
        await self._end(gone)
        for scope in gone:
            logger.info("namespace %s is looked after no more", scope)
            for informer in self._informers.values():
                informer.leave(scope)
        for scope in sorted(wanted - self._tasks.keys()):
            name = f"onyx-watch-{scope or 'all'}"
            self._tasks[scope] = asyncio.create_task(self._look_after(scope), name=name)
        self._count()

    async def _scopes(self) -> set[str]:
        """The namespaces to be looked after now; as before while that cannot be asked."""
        settings = self._settings
        if not settings.namespace_labels:
            return set(settings.namespaces) or {ALL}
        try:
            found = await self._kube.list_all(NAMESPACES, labels=settings.namespace_labels)
        except (KubeError, Unavailable) as error:
            logger.warning("namespaces cannot be listed: %s", error)
            return set(self._tasks) | set(settings.namespaces)
        return {str(each["metadata"]["name"]) for each in found} | set(settings.namespaces)

    async def _look_after(self, scope: str) -> None:
        """List and watch one namespace, for ever."""
        pace = self._settings.clusters
        failures = 0
        while True:
            wait_s = min(RETRY_MAX_S, pace.retry_min_s * 2 ** min(failures, 30))
            try:
                for informer in self._informers.values():
                    await informer.list(self._kube, scope)
            except (KubeError, Unavailable) as error:
                failures += 1
                self._set_refused(scope, str(error))
            else:
                self._set_refused(scope, "")
                begun_s = asyncio.get_running_loop().time()
                reason = await self._follow(scope)
                lived_s = asyncio.get_running_loop().time() - begun_s
                failures = 0 if lived_s > RETRY_MAX_S else failures + 1
                logger.warning("the watch of %s has ended: %s", _shown(scope), reason)
                for informer in self._informers.values():
                    informer.broken(scope)
            await asyncio.sleep(wait_s)

    async def _follow(self, scope: str) -> str:
        """Watch a namespace that has been listed until its watch ends; why it did."""

        def deliver(resource: Resource, event: str, body: Object) -> None:
            if resource in self._relays:
                self._relays[resource](body)
            else:
                self._informers[resource].event(scope, body, gone=event == "DELETED")

        cell = Cell(self._configuration, scope, self._watched, deliver)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(cell.stop)
            for informer in self._informers.values():
                listing = asyncio.create_task(self._list_again(informer, scope))
                stack.callback(listing.cancel)
            return await cell.ended()

    async def _list_again(self, informer: Informer, scope: str) -> None:
        """List periodically, soon at first: an object that is deleted between our list and kopf's,
        which are two, is in no event."""
        if informer.interval_s <= 0:
            return
        for wait_s in chain(FIRST_LISTS_S, repeat(informer.interval_s)):
            await asyncio.sleep(min(wait_s, informer.interval_s))
            try:
                await informer.list(self._kube, scope)
                self._set_refused(scope, "")
            except (KubeError, Unavailable) as error:
                self._set_refused(scope, str(error))

    def _set_refused(self, scope: str, reason: str) -> None:
        if reason and scope not in self._refused:
            logger.warning("%s cannot be looked after now: %s", _shown(scope), reason)
        if reason:
            self._refused[scope] = reason
            for informer in self._informers.values():
                informer.excused(scope)
        elif self._refused.pop(scope, ""):
            logger.info("%s is looked after again", _shown(scope))
        self._count()

    def _count(self) -> None:
        refused = sum(scope in self._refused for scope in self._tasks)
        self._metrics.namespaces(watched=len(self._tasks) - refused, refused=refused)

    async def _end(self, scopes: Sequence[str]) -> None:
        tasks = [self._tasks.pop(scope) for scope in scopes]
        for scope in scopes:
            self._refused.pop(scope, None)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _shown(scope: str) -> str:
    return f"namespace {scope}" if scope else "the cluster"
