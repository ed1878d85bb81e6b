"""`breakpoint()` in functions of users that run in workers of `onyx run`.

A worker is in a session of its own, and where it reads there is nobody. The run says in the folder
of its log at which terminal it is, and holds a lock on that file as long as it draws there. Who
comes to a breakpoint asks with a byte in the file, waits for the lock, and has the terminal each
time that the debugger reads. The run draws no more from then on: what is above its last line is
somebody's debugging. So nobody need say before that there will be a breakpoint, and several
processes have the terminal in turn.

Only the thread of the function stands still: its worker stays a member of the cluster, and the
watch over tasks asks here whether somebody is debugging.

Who leaves the debugger (`q`) wants the job to end. What pdb raises then would be a failure of one
segment, with a dead letter, and the debugger would come again with the next one. So the thread says
in the file that it was left, and stands still with the terminal in its hand until its process is
ended.

Rejected: to run the job in the process of the command: it is another program then, with other
failures. A debugger that is reached over a socket, as those of editors are: one more command.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onyx.errors import OnyxError

if TYPE_CHECKING:
    from pdb import Pdb

logger = logging.getLogger("onyx.peer")
FILE = "terminal"
ASKS, LEFT = b"?", b"!"
CHOSEN = "PYTHONBREAKPOINT"
"""The variable with which users choose a debugger of their own."""
_reading: list[Path] = []
"""The loans of this process that somebody has at this moment; one at most."""
stand_still: Callable[[], object] = threading.Event().wait


class DebuggerLeft(OnyxError):
    """Somebody has left the debugger of a run."""


class TerminalLoan:
    """The terminal of a run, in the run; it is lent once, for as long as the run lasts."""

    def __init__(self, folder: Path, terminal: str) -> None:
        path = folder / FILE
        path.write_text(terminal)
        self._file, self._said = path.open("rb"), b""
        self._file.seek(0, os.SEEK_END)
        self.is_lent = False
        """Whether debuggers have it in turn, and nothing is to be drawn."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def look(self, lend: Callable[[], None]) -> bool:
        """Whether it is lent; `lend` is called before that is so.

        Raises:
            DebuggerLeft: somebody has left a debugger that had it.
        """
        self._said += self._file.read()
        if self._said and not self.is_lent:
            lend()
            self.is_lent = True
            fcntl.flock(self._file, fcntl.LOCK_UN)
        if LEFT in self._said:
            raise DebuggerLeft("left the debugger, so the job was ended")
        return self.is_lent


@contextmanager
def lending(folder: Path, wanted: bool) -> Iterator[TerminalLoan | None]:
    """The loan of a run in whose log's folder workers look; None if it is at no terminal."""
    if not (wanted and sys.stdin is not None and sys.stdin.isatty()):
        yield None
        return
    loan = TerminalLoan(folder, os.ttyname(sys.stdin.fileno()))
    try:
        yield loan
    finally:
        (folder / FILE).unlink(missing_ok=True)
        loan._file.close()


def listen_for_breakpoints(folder: str) -> None:
    """Have `breakpoint()` in this process ask the run with a log in this folder, unless the user
    has chosen another debugger."""
    if CHOSEN not in os.environ:
        sys.breakpointhook = partial(_enter, Path(folder) / FILE)


def somebody_debugs() -> bool:
    """Whether a debugger waits for somebody in this process."""
    return bool(_reading)


def _enter(file: Path, *_: Any, **__: Any) -> None:
    frame = sys._getframe(1)
    try:
        terminal = file.read_bytes().rstrip(ASKS + LEFT)
        with file.open("ab") as asking:
            asking.write(ASKS)
    except FileNotFoundError:
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        logger.warning(
            "breakpoint() at %s does nothing: `onyx run` at a terminal and `onyx debug` have a "
            "debugger",
            where,
        )
        return
    _debugger(file, terminal).set_trace(frame)


def _debugger(file: Path, terminal: bytes) -> Pdb:
    """One that has the terminal while it reads."""
    from pdb import Pdb  # which a worker imports for nothing else

    class BorrowingPdb(Pdb):
        def interaction(self, *args: Any, **kwargs: Any) -> None:
            opened = os.open(file, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(opened, "wb", buffering=0) as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                _reading.append(file)
                try:
                    super().interaction(*args, **kwargs)
                    if self.quitting:
                        held.write(LEFT)
                        stand_still()
                finally:
                    _reading.remove(file)

    # Not as the terminal of this session: it belongs to that of the run.
    descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
    reads, writes = os.fdopen(descriptor, "r"), os.fdopen(os.dup(descriptor), "w")
    return BorrowingPdb(stdin=reads, stdout=writes, nosigint=True)
