"""`onyx console`: pages for a browser about a cluster, its jobs and what has happened to them."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from threading import Event
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from onyx.base.on_demand import ModuleOnDemand
from onyx.bundle.bundle_file import read
from onyx.bundle.bundled_log import client_of
from onyx.cli.command_line import Option
from onyx.cli.local_server import KeptPlace
from onyx.errors import SettingsError
from onyx.processes.surroundings import configure_logs, settings, stop_signal
from onyx.replica.authors import escaped
from onyx.settings import Settings

serve = ModuleOnDemand("onyx.console.serve", extra="console")
PORT = 8484
NOTE_CHARACTERS_MAX = 1_000
ALONE = (
    "--bundle goes without --kept, --zookeeper, --log, --tenancy and --actions: all is in the "
    "file, and nothing can be done to its jobs"
)
BundleOption = Annotated[
    Path | None,
    Option("--bundle", "File that `onyx bundle` has written; no cluster is asked.", metavar="FILE"),
]


def console(
    port: Annotated[
        int, Meta(ge=0, le=65_535), Option("--port", "Port to listen on; 0 takes a free one.")
    ] = PORT,
    host: Annotated[
        str, Option("--host", "Address to listen on; beyond this machine it takes --token-file.")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None,
        Option("--name", "Name by which browsers reach it, besides its host; repeat."),
    ] = None,
    token_file: Annotated[
        str | None,
        Option("--token-file", "File with tokens, one of which is asked for.", metavar="FILE"),
    ] = None,
    user_header: Annotated[
        str | None,
        Option(
            "--user-header", "Header in which a proxy with a token names users.", metavar="NAME"
        ),
    ] = None,
    actions: Annotated[
        bool, Option("--actions", "Let jobs be suspended, resumed, drained, changed and killed.")
    ] = False,
    bundle: BundleOption = None,
    place: KeptPlace = KeptPlace(),
) -> None:
    """Show a cluster in a browser: its jobs, why they wait or stand still, and what has happened.

    It reads the log and what workers report, and changes nothing without --actions. Ends with
    SIGTERM or Ctrl-C.
    """
    stop = stop_signal()
    if bundle is not None and (actions or place != KeptPlace()):
        raise SettingsError(ALONE)
    options = serve.ConsoleOptions(
        host, port, tuple(name or ()), token_file or "", user_header or "", actions
    )
    with ExitStack() as stack:
        if bundle is not None:
            whose, opened = _of_bundle(bundle, settings(), options, stop)
        else:
            found = stack.enter_context(place.opened())
            configure_logs(found.telemetry, {"tenancy": found.tenancy_id})
            whose, opened = found.tenancy_id, serve.console_of(found, options, stop.set)
        address = stack.enter_context(opened)
        print(f"the console of {whose} is at {address}", flush=True)
        stop.wait()


def _of_bundle(
    file: Path, found: Settings, options: Any, stop: Event
) -> tuple[str, AbstractContextManager[str]]:
    """What is shown, and the console of it."""
    shown = read(file)
    for note in shown.notes:
        print(f"warning: {escaped(note, NOTE_CHARACTERS_MAX)}", file=sys.stderr)
    head = shown.head
    whose = escaped(f"a bundle of {head.name or head.job}", NOTE_CHARACTERS_MAX)
    still, client = serve.StillLife(head.at_ms, shown.measures, shown.workers), client_of(shown)
    found = replace(found, tenancy_id=whose)
    return whose, serve.serving(client, found, options, stop.set, still)
