"""The end of a process: the code that says why, to scripts and to the supervisor of worker
processes, and no tenth of a second in which Python frees what it has imported.

To free each object takes a command longer than to import it from a warm disk, and in a fork it
copies all memory that is shared. So what is said at the end is said, and the system does the rest.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

from onyx.errors import LogReplaced, ManifestError, OnyxError, OutOfMemory, UserError, brief


class ExitCode(IntEnum):
    """The exit codes of all commands, and of worker processes."""

    SUCCESS = 0
    FAILURE = 1
    """It could not be done now, or there is a bug; a restart may help."""
    INVALID = 2
    """A job, an option or a setting is wrong; the same command fails again."""
    LOG_REPLACED = 3
    """ZooKeeper was wiped: a worker started again would join an empty cluster as a new member."""
    OUT_OF_MEMORY = 137
    """128 and the number, as shells count SIGKILL: the kernel has killed too many processes for
    want of memory."""
    INTERRUPTED = 130
    """The code as shells count: 128 and the number of SIGINT."""


FINAL = (ExitCode.INVALID, ExitCode.LOG_REPLACED)
"""Codes after which the supervisor does not start a worker again."""


def exit_code_of(error: OnyxError) -> ExitCode:
    """The code with which a command ends because of an error."""
    if isinstance(error, LogReplaced):
        return ExitCode.LOG_REPLACED
    if isinstance(error, OutOfMemory):
        return ExitCode.OUT_OF_MEMORY
    return ExitCode.INVALID if isinstance(error, UserError) else ExitCode.FAILURE


@contextmanager
def exits_with_code() -> Iterator[None]:
    """End this process with a message for the person who must act, if the block raises an error of
    ours; a traceback is shown only for a bug in Onyx itself."""
    try:
        yield
    except ManifestError as error:
        for problem in error.problems:
            print(f"error: {_shown(str(problem))}", file=sys.stderr)
        count = len(error.problems)
        print(f"{count} problem{'' if count == 1 else 's'} found", file=sys.stderr)
        sys.exit(ExitCode.INVALID)
    except OnyxError as error:
        print(f"error: {_shown(brief(str(error)))}", file=sys.stderr)
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)


def _shown(text: str) -> str:
    """A message without what moves the cursor of a terminal: names in it may be a stranger's."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text
    )


def run_to_the_end(program: Callable[[], None]) -> NoReturn:
    """Run a program, and end this process with the code that Python would end it with, after its
    threads, its hooks for the end, and what it has written."""
    code = 0
    try:
        program()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        code = ExitCode.FAILURE
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:  # whoever reads it has gone
                code = code or ExitCode.FAILURE
    os._exit(code & 0xFF)
