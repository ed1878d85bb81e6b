"""The `onyx` command.

One module a group of commands; this one only starts them. Worker processes are in `processes`, and
do without what reads a command line.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from onyx.processes.ends import ExitCode, exits_with_code, run_to_the_end
from onyx.processes.init import divide


def main() -> NoReturn:
    """Entry point of the command."""
    divide()
    run_to_the_end(command)


def command() -> None:
    """Do what the command line says.

    Raises:
        SystemExit: with its exit code, unless that is 0.
    """
    # Here, so that process 1 of a container stays small.
    from onyx.cli.command_table import run_command

    try:
        with exits_with_code():
            run_command(sys.argv[1:])
    except BrokenPipeError:  # who reads what this prints has seen enough, as in `onyx log | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.FAILURE)
