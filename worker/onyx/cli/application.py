"""What the `onyx` command says of itself; its commands are in `command_table`."""

from __future__ import annotations

from typing import Annotated

import typer

from onyx import __version__
from onyx.cli.command_table import OPTIONS, LazyGroup

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
