"""The `onyx` command.

One module a group of commands; this one only starts them. Worker processes are in `processes`, and
do without what reads a command line.
"""

from __future__ import annotations

from onyx.processes.exit_codes import exits_with_code
from onyx.processes.init import divide


def main() -> None:
    """Entry point of the command."""
    divide()
    # After that, so that process 1 of a container stays small.
    from onyx.cli.application import app

    with exits_with_code():
        app()
