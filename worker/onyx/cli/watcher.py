"""How the job of `onyx run` is, asked for beside its progress: when ZooKeeper does not answer for a
while, the command says that and goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import msgspec

from onyx.client import failure_text
from onyx.client.client import Client
from onyx.client.statuses import JobStatus
from onyx.errors import OnyxError
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.replica.state import Replica

SILENT_AFTER_S = 15.0
"""An answer for which the log needs longer does not come."""
REPEATED_AFTER_S = 60.0
ASK_INTERVAL_S = 0.5


class _Answer(msgspec.Struct, frozen=True):
    status: JobStatus | None
    trouble: str
    at_s: float


class Watcher:
    """Asks on a thread of its own, one question at a time."""

    def __init__(self, client: Client, manifest: Job, job: JobId) -> None:
        self._client = client
        self._manifest = manifest
        self.job = job
        self.completed: Mapping[str, int] = {}
        """Positions that its inputs have completed."""
        self._answer = _Answer(None, "", time.monotonic())
        self._asking: threading.Thread | None = None
        self._printed = ""
        self._printed_s = 0.0

    def title(self, replica: Replica, waited_s: float) -> str:
        """How the job was when the log answered last."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask, args=(replica,), daemon=True)
            self._asking.start()
            self._asking.join(ASK_INTERVAL_S)
        status = self._answer.status
        if status is None:
            return f"job {self.job} ({waited_s:.0f} s)"
        note = status.waiting_for or self._stalled()
        why = f": {note}" if note else ""
        return f"{status.name} {status.state}{why} ({status.peers} peers, {waited_s:.0f} s)"

    def news(self) -> list[str]:
        """Lines to print: why the job does not advance, once in a while as long as it does not."""
        found, now_s = self._stalled(), time.monotonic()
        kind = found.partition(":")[0].partition(", for ")[0]
        if not found or (kind == self._printed and now_s < self._printed_s + REPEATED_AFTER_S):
            self._printed = kind if found else ""
            return []
        self._printed, self._printed_s = kind, now_s
        status = self._answer.status
        stalls = status.stalls if status is not None else ()
        stacks = (failure_text.stack(each) for each in stalls if each.stack)
        return [f"job {found}", *next(stacks, [])]

    def _stalled(self) -> str:
        answer = self._answer
        silent_s = time.monotonic() - answer.at_s
        if silent_s >= SILENT_AFTER_S or answer.trouble:
            why = f" ({answer.trouble})" if answer.trouble else ""
            return f"does not advance: ZooKeeper has not answered for {silent_s:.0f} s{why}"
        return answer.status.stalled if answer.status is not None else ""

    def _ask(self, replica: Replica) -> None:
        try:
            status = self._client.status_at(replica, self.job)
            self.completed = self._client.completed_positions(replica, self._manifest, self.job)
            self._answer = _Answer(status, "", time.monotonic())
        except OnyxError as error:
            last = self._answer
            self._answer = _Answer(last.status, str(error), last.at_s)
