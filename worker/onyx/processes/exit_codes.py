"""What a command's exit code says, to scripts and to the supervisor of worker processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

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
            print(f"error: {problem}", file=sys.stderr)
        count = len(error.problems)
        print(f"{count} problem{'' if count == 1 else 's'} found", file=sys.stderr)
        sys.exit(ExitCode.INVALID)
    except OnyxError as error:
        print(f"error: {brief(str(error))}", file=sys.stderr)
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)
