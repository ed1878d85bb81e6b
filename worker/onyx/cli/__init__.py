"""The `onyx` command.

One module a group of commands; this one only starts them and turns errors into messages for the
person who must act. A traceback is shown only for a bug in Onyx itself.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from onyx import __version__
from onyx.cli.command_table import OPTIONS, LazyGroup
from onyx.cli.exit_codes import ExitCode, exit_code_of
from onyx.cli.processes.init import divide
from onyx.errors import ManifestError, OnyxError, brief

app = typer.Typer(name="onyx", cls=LazyGroup, no_args_is_help=True, **OPTIONS)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"onyx {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
]


@app.callback()
def onyx(version: VersionOption = False) -> None:
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
        print(f"error: {brief(str(error))}", file=sys.stderr)
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)
