"""The `onyx` command.

One module a group of commands; this one only starts them and turns errors into messages for the
person who must act. A traceback is shown only for a bug in Onyx itself.
"""

from __future__ import annotations

import sys

import typer

from onyx.cli.command_table import OPTIONS, LazyGroup
from onyx.cli.exit_codes import ExitCode, exit_code_of
from onyx.cli.processes.init import divide
from onyx.errors import ManifestError, OnyxError

app = typer.Typer(name="onyx", cls=LazyGroup, no_args_is_help=True, **OPTIONS)


@app.callback()
def onyx() -> None:
    """Masterless, data-driven stream and batch processing."""


def main() -> None:
    """Entry point of the command."""
    divide()
    try:
        app()
    except ManifestError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        count = len(error.problems)
        print(f"{count} problem{'' if count == 1 else 's'} found", file=sys.stderr)
        sys.exit(ExitCode.INVALID)
    except OnyxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)
