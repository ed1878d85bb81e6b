"""Where requests are handed over to the inputs of this process.

The router (`peer.router`) finds the mailbox of a partition here, whether the request came over
gRPC, over HTTP or from another worker. An input puts it here while it owns the partition.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, Protocol

from onyx.ids import JobId, TaskName

if TYPE_CHECKING:  # plugins are also checked where Arrow is not installed
    from onyx.requests.request import Answer, Request


MOVES = "the partition moves to another worker"
"""Why nobody takes a request for it here."""


class Address(NamedTuple):
    """A partition of an input of a running job."""

    job: JobId
    task: TaskName
    partition: int
    """Its number within the task."""


class Mailbox(Protocol):
    """Takes the requests for one partition. Safe from any thread."""

    def offer(self, request: Request) -> Future[Answer]:
        """Take a request; the future has its answer."""
        ...

    def refuse(self) -> None:
        """Take nothing new from now on, because the job drains. Repeats change nothing."""
        ...

    def obstacle(self, id: str) -> str:
        """Why a request is not answered yet, as far as that is known here; empty: it is not."""
        ...


class MailboxRegistry:
    """The mailboxes of one process. Safe from any thread."""

    def __init__(self) -> None:
        self._mailboxes: dict[Address, Mailbox] = {}
        self._lock = threading.Lock()

    def open(self, address: Address, mailbox: Mailbox) -> None:
        """Requests for the partition go into this mailbox from now on."""
        with self._lock:
            self._mailboxes[address] = mailbox

    def close(self, address: Address, mailbox: Mailbox) -> None:
        """They do not any more, unless another mailbox has taken its place."""
        with self._lock:
            if self._mailboxes.get(address) is mailbox:
                del self._mailboxes[address]

    def find(self, address: Address) -> Mailbox | None:
        """The mailbox of a partition; None: it is not owned by this process."""
        return self._mailboxes.get(address)
