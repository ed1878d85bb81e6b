"""The table of commands; the module of one is imported when it is called.

A command `NAME` is function `NAME` of module `onyx.cli.commands.NAME`, with `_` for `-`; the other
half of another command is in that one's module (`HALVES`). The engine takes most of a second to
import, and a person who asks for help or checks a job file needs none of it. So the listing is made
from this table alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from onyx import __version__
from onyx.base.on_demand import loaded
from onyx.cli.command_line import HELP, Misuse, misused, run, unknown
from onyx.processes.ends import ExitCode

COMMANDS: Mapping[str, str] = {
    "init": "Write a job or a plugin to begin with, with tests.",
    "run": "Run a job on this machine: log, workers and all.",
    "validate": "Check a file; prints every problem with its key path.",
    "schema": "Print the JSON Schema of a job file, for editors.",
    "plan": "Print how Spark would run a job.",
    "submit": "Submit a job to a running cluster and print its id.",
    "kill": "Stop a job for ever; one that has completed stays so.",
    "suspend": "Give the peers of a job to others until `resume`.",
    "resume": "Let a suspended or paused job continue where its inputs were.",
    "drain": "Let a job read nothing new, finish and complete.",
    "set": "Give keys of a task other values while its job runs.",
    "jobs": "List jobs: state, peers, why a job waits or failed.",
    "console": "Show jobs and what happens to them in a browser.",
    "bundle": "Write all that a cluster says of a job into a file.",
    "replay": "Run the batch again at which a job has failed.",
    "debug": "Run one task of a job over segments of a file, in the debugger.",
    "append": "Hand segments to an input of a running job.",
    "redrive": "Put dead letters into a running job again, each once.",
    "state": "Show what a job holds: windows, states, tables, joins.",
    "events": "Print what has happened to jobs, when, and by whom.",
    "log": "Print the entries of the log, one a line.",
    "replica": "Print the replica: what the log folds into.",
    "gc": "Forget the jobs that have ended, and trim the log.",
    "backup": "Copy a cluster's log and state, at one moment, into a folder or bucket.",
    "restore": "Begin an empty log with a backup.",
    "savepoint": "Copy one job's state, for another job to begin with.",
    "admit": "Make a tenancy of ZooKeeper for another user.",
    "worker": "Run a worker, in one process or several.",
    "log-server": "Serve the log of a cluster on this machine, without ZooKeeper.",
    "zookeeper": "Run a ZooKeeper server.",
    "completion": "Print what a shell needs to complete all of this.",
}
"""Every command, with its line in the listing."""

HALVES: Mapping[str, str] = {"resume": "suspend", "restore": "backup", "savepoint": "backup"}
"""Commands that are in the module of another one."""

VERSION = "--version"
OPTIONS: Mapping[str, str] = {
    VERSION: "Print the version and exit.",
    HELP: "Show this page and exit.",
}


def command(name: str) -> Callable[..., None]:
    """The function of a command."""
    found: Callable[..., None] = loaded(f"{module_of(name)}:{name.replace('-', '_')}")
    return found


def module_of(name: str) -> str:
    """The module of a command."""
    return f"onyx.cli.commands.{HALVES.get(name, name).replace('-', '_')}"


def run_command(words: Sequence[str]) -> None:
    """Do what a command line says, without the name of the program.

    Raises:
        SystemExit: with the code of a command that has failed, or that was misused.
        OnyxError: why it has failed.
    """
    name = words[0] if words else ""
    try:
        if name in COMMANDS:
            run(name, command(name), words[1:])
        elif name == HELP:
            print(overview())
        elif name == VERSION:
            print(f"onyx {__version__}")
        elif not name:
            print(overview(), file=sys.stderr)
            sys.exit(ExitCode.INVALID)
        else:
            kind = "option" if name.startswith("-") else "command"
            raise Misuse(unknown(kind, name, [*COMMANDS, *OPTIONS]))
    except Misuse as error:
        misused(error, name if name in COMMANDS else "")
        sys.exit(ExitCode.INVALID)


def overview() -> str:
    """The page of help of `onyx` itself."""
    return "\n\n".join(
        (
            "usage: onyx [OPTIONS] COMMAND [ARGS]...",
            "Masterless, data-driven stream and batch processing.",
            _listing("options:", OPTIONS),
            _listing("commands:", COMMANDS),
        )
    )


def _listing(title: str, rows: Mapping[str, str]) -> str:
    return "\n".join([title, *(f"  {name:<10} {text}" for name, text in rows.items())])
