"""What a command takes from where it runs, and arranges there: variables, folders, logs, signals.

Apart from `options`, because worker processes have no command line.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.base.variables import misspelt
from onyx.errors import SettingsError
from onyx.settings import Settings, TelemetrySettings, from_environment, variables

CONFIGURE = OnDemand[Callable[..., None]]("onyx.telemetry.logs:configure")
"""Commands that check a file log nothing."""


def settings(
    zookeeper: str | None = None,
    tenancy: str | None = None,
    modules: list[str] | None = None,
    log_folder: Path | None = None,
) -> Settings:
    """Settings from ONYX_* variables, with what was given on the command line on top.

    Raises:
        SettingsError: the log cannot be in two places.
    """
    found = from_environment(os.environ)
    _warn_of_variables()
    if zookeeper is not None and log_folder is not None:
        raise SettingsError("give --log or --zookeeper: a log is in a folder or in ZooKeeper")
    if zookeeper is not None:
        address = replace(found.zookeeper, address=zookeeper)
        found = replace(found, zookeeper=address, log=replace(found.log, folder=""))
    if log_folder is not None:
        found = replace(found, log=replace(found.log, folder=str(log_folder.absolute())))
    if tenancy is not None:
        found = found.of(tenancy)
    if modules:
        names = tuple(name for each in modules for name in each.split(",") if name)
        found = replace(found, modules=names)
    return found


def is_set(setting: str) -> bool:
    """Whether an ONYX_* variable gives a setting, named as in `telemetry_log_level`."""
    return f"ONYX_{setting.upper()}" in os.environ


@cache
def _warn_of_variables() -> None:
    """Once in a process, because logs are configured by these settings."""
    for each in misspelt(os.environ, variables(), "ONYX"):
        sys.stderr.write(f"warning: {each}\n")


def configure_logs(found: TelemetrySettings, fields: Mapping[str, Any] | None = None) -> None:
    """Log as the settings say, each line with these fields.

    Raises:
        SettingsError: they cannot be followed.
    """
    CONFIGURE.load()(
        found.log_level,
        found.log_format,
        fields=fields,
        file=found.log_file,
        config=found.log_config,
    )


def import_from(*folders: Path) -> None:
    """Let modules be found in these folders too, first of all in the first: a console script, other
    than `python -m`, does not look where the user is."""
    sys.path[:0] = [str(folder.resolve()) for folder in folders]


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM ends everything in the block as Ctrl-C does, in an orderly way. Where the program has
    said what it does, and on other threads than the main one, nothing changes."""
    default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not default or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def stop_signal() -> threading.Event:
    """An event that SIGTERM and SIGINT set, from now on; a second signal changes nothing."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
