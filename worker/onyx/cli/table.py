"""The table of commands, and a group that imports the module of a command when it is called.

The engine takes most of a second to import, and a person who asks for help or checks a job file
needs none of it. So the listing is made from this table alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import typer
import typer.core
import typer.main

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("onyx.cli.commands.run:run", "Run a job on this machine: ZooKeeper, workers and all."),
    "validate": (
        "onyx.cli.commands.validate:validate",
        "Check a file; prints every problem with its place.",
    ),
    "submit": (
        "onyx.cli.commands.jobs:submit",
        "Submit a job to a running cluster and print its id.",
    ),
    "kill": (
        "onyx.cli.commands.jobs:kill",
        "Stop a job for ever; one that has completed stays so.",
    ),
    "suspend": (
        "onyx.cli.commands.jobs:suspend",
        "Give the peers of a job to others until `resume`.",
    ),
    "resume": ("onyx.cli.commands.jobs:resume", "Let a suspended job go on where its inputs were."),
    "drain": ("onyx.cli.commands.jobs:drain", "Let a job read nothing new, finish and complete."),
    "jobs": (
        "onyx.cli.commands.jobs:list_jobs",
        "List jobs: state, peers, why a job waits or failed.",
    ),
    "state": (
        "onyx.cli.commands.state:show_state",
        "Show what a window of a running job has gathered.",
    ),
    "log": ("onyx.cli.commands.log:show_log", "Print the entries of the log, one a line."),
    "replica": (
        "onyx.cli.commands.log:show_replica",
        "Print the replica: what the log folds into.",
    ),
    "gc": ("onyx.cli.commands.log:collect", "Forget the jobs that have ended, and trim the log."),
    "worker": ("onyx.cli.commands.worker:run_worker", "Run a worker, in one process or several."),
    "zookeeper": ("onyx.cli.commands.zookeeper:run_zookeeper", "Run a ZooKeeper server."),
}
"""Where each command is, and what the listing says of it."""

OPTIONS: Mapping[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
"""Of every Typer that is made here."""


class LazyGroup(typer.core.TyperGroup):
    """A group of the commands of the table."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, _Lazy())

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in COMMANDS.items()])


class _Lazy(Mapping[str, Any]):
    """The commands by their names; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        module, _, function = COMMANDS[name][0].partition(":")
        alone = typer.Typer(**OPTIONS)
        alone.command(name)(getattr(importlib.import_module(module), function))
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)
