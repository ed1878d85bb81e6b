"""The table of commands, and a group that imports the module of a command when it is called.

A command `NAME` is function `NAME` of module `onyx.cli.commands.NAME`. The engine takes most of a
second to import, and a person who asks for help or checks a job file needs none of it. So the
listing is made from this table alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import typer
import typer.core
import typer.main

COMMANDS: Mapping[str, str] = {
    "init": "Write a job or a plugin to begin with, with tests.",
    "run": "Run a job on this machine: ZooKeeper, workers and all.",
    "validate": "Check a file; prints every problem with its key path.",
    "plan": "Print how Spark would run a job.",
    "submit": "Submit a job to a running cluster and print its id.",
    "kill": "Stop a job for ever; one that has completed stays so.",
    "suspend": "Give the peers of a job to others until `resume`.",
    "resume": "Let a suspended job continue where its inputs were.",
    "drain": "Let a job read nothing new, finish and complete.",
    "set": "Give keys of a task other values while its job runs.",
    "jobs": "List jobs: state, peers, why a job waits or failed.",
    "append": "Hand segments to an input of a running job.",
    "state": "Show what a job holds: windows, states, tables, joins.",
    "log": "Print the entries of the log, one a line.",
    "replica": "Print the replica: what the log folds into.",
    "gc": "Forget the jobs that have ended, and trim the log.",
    "worker": "Run a worker, in one process or several.",
    "zookeeper": "Run a ZooKeeper server.",
}
"""Every command, with its line in the listing."""

OPTIONS: Mapping[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
"""Options of every Typer that is made here."""


class LazyGroup(typer.core.TyperGroup):
    """A group of the commands of the table."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, _Lazy())

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The listing, without an import of any command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


class _Lazy(Mapping[str, Any]):
    """The commands by their names; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        module = importlib.import_module(f"onyx.cli.commands.{name}")
        alone = typer.Typer(**OPTIONS)
        alone.command(name)(getattr(module, name))
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)
