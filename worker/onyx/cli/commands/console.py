"""`onyx console`: pages for a browser about a cluster, its jobs and what has happened to them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

from msgspec import Meta

from onyx.base.on_demand import ModuleOnDemand
from onyx.cli.command_line import Option
from onyx.cli.local_server import KeptOption, log_of
from onyx.cli.options import LogOption, TenancyOption, ZooKeeperOption
from onyx.processes.surroundings import configure_logs, stop_signal

serve = ModuleOnDemand("onyx.console.serve", extra="console")
PORT = 8484


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
    kept: KeptOption = None,
    zookeeper: ZooKeeperOption = None,
    log_folder: LogOption = None,
    tenancy: TenancyOption = None,
) -> None:
    """Show a cluster in a browser: its jobs, why they wait or stand still, and what has happened.

    It reads the log and what workers report, and changes nothing without --actions. Ends with
    SIGTERM or Ctrl-C.
    """
    stop = stop_signal()
    options = serve.ConsoleOptions(
        host, port, tuple(name or ()), token_file or "", user_header or "", actions
    )
    with ExitStack() as stack:
        found = stack.enter_context(log_of(kept, zookeeper, log_folder, tenancy))
        configure_logs(found.telemetry, {"tenancy": found.tenancy_id})
        address = stack.enter_context(serve.console_of(found, options, stop.set))
        print(f"the console of {found.tenancy_id} is at {address}", flush=True)
        stop.wait()
