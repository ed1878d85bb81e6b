"""Small objects that are replaced often, written behind: the newest bytes of each, once a second.

Each request to an object store takes its time and costs money. Whoever notes something after every
write would pay twice, so a thread of this process writes what is newest. What it has not written
yet is lost with the process; a failure is logged, and the next note tries again. What is written
behind must not come back when it was removed meanwhile, so an object that is not there stays so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from onyx.errors import OnyxError
from onyx.storage.objects.bucket import Bucket, only_if
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing
from onyx.storage.objects.urls import ObjectUrl

_logger = logging.getLogger(__name__)

INTERVAL_S = 1.0


class Trailing:
    """Safe from any thread."""

    def __init__(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """`begin` runs work beside whoever calls, from then on; called when something is to be
        written first."""
        self._begin = begin
        self._begun = False
        self._newest: dict[ObjectUrl, bytes] = {}
        self._lock = threading.Lock()
        self._some = threading.Event()

    def put(self, url: ObjectUrl, data: bytes) -> None:
        """Write `data` in the place of an object soon, unless something newer comes before."""
        with self._lock:
            self._newest[url] = data
            if not self._begun:
                self._begun = True
                self._begin(self._run)
        self._some.set()

    def write(self) -> None:
        """Write what is newest now."""
        with self._lock:
            newest, self._newest = self._newest, {}
        for url, data in newest.items():
            try:
                _replace(Bucket(url.bucket), url.key, data)
            except OnyxError as error:
                _logger.warning("%s is not written for now: %s", url, error)

    def _run(self) -> None:
        while self._some.wait():
            self._some.clear()
            self.write()
            time.sleep(INTERVAL_S)


def _replace(bucket: Bucket, key: str, data: bytes) -> None:
    found = bucket.get(key)
    if found is None:
        return
    try:
        bucket.put(key, data, only_if(found))
    except (ConditionFailed, ObjectMissing):
        _logger.debug("%s was removed meanwhile", key)


def _on_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="onyx-object-notes", daemon=True).start()


TRAILING = Trailing(_on_a_thread)
"""That of this process."""
