"""What a command's exit code says, to scripts and to the supervisor of worker processes."""

from __future__ import annotations

from enum import IntEnum

from onyx.errors import LogReplaced, OnyxError, OutOfMemory, UserError


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
