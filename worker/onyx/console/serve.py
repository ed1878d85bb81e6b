"""A console that serves, for the time of a block: what it reads, and where it listens.

It is served by the server of the workers' port for HTTP, with its limits of connections, times and
sizes. Pages are made on threads beside its event loop.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from onyx.base.event_loop import EventLoop
from onyx.base.on_demand import ModuleOnDemand, OnDemand
from onyx.base.seams import Clock, SystemClock
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.client.measures import measure_reader
from onyx.client.reader import JobReader
from onyx.console.actions import Actions
from onyx.console.app import LOOPBACK, ConsoleApp, Guard
from onyx.console.append_page import APPEND_TIMEOUT_S, SegmentAppends
from onyx.console.ask_page import Answerer
from onyx.console.board import Manifests, Past, Reporter, followed
from onyx.console.pages import Console, templates
from onyx.errors import OnyxError, UserError
from onyx.ids import JobId
from onyx.log.acts import user_of_process
from onyx.replica.authors import TOKEN, author
from onyx.replica.state import Replica
from onyx.reports.measures import Measures, WorkerDiagnostics
from onyx.requests.request import Answer, Level
from onyx.requests.tokens import Tokens
from onyx.serving.listening import listener_at
from onyx.serving.server import HttpServer
from onyx.settings import Settings
from onyx.tls.server_files import ServerFiles

if TYPE_CHECKING:  # see `ask_page`
    from onyx.client.query import StateReader
    from onyx.client.window_view import Question, WindowView

PORT = 8484
FRESH_S = 1.0
MEASURES_TIMEOUT_S = 1.0
"""By then whoever has not answered is shown as silent."""
CALL_TIMEOUT_S = 10.0
VARIABLES = "ONYX_HTTP"
appending = ModuleOnDemand("onyx.client.appending")
_STATE_READER: OnDemand[Callable[[JobReader, Settings], StateReader]] = OnDemand(
    "onyx.client.query:state_reader"
)


class ConsoleOptions(msgspec.Struct, frozen=True):
    """Where a console listens, and who may look."""

    host: str = LOOPBACK[0]
    port: int = PORT
    """0 takes a free one."""
    names: tuple[str, ...] = ()
    """Names by which browsers reach it, besides that of its host."""
    token_file: str = ""
    """A file with tokens, one a line, one of which is asked for."""
    user_header: str = ""
    """The header in which a proxy that shows a token names the user."""
    has_actions: bool = False
    """Whether jobs can be changed. Where no file has tokens, one is drawn then, and shown in the
    address: others on this machine may look, and would act under the name of who has started it."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def hosts(self) -> tuple[str, ...]:
        """All names that a request may be for."""
        own = f"[{self.host}]" if ":" in self.host else self.host
        return (own, *(LOOPBACK if self.is_loopback else ()), *self.names)

    def check(self) -> None:
        """Raises UserError when strangers could look."""
        if not self.is_loopback and not self.token_file:
            raise UserError(
                f"a console at {self.host} is seen from other machines: name a file with a token "
                "(--token-file), or listen on 127.0.0.1"
            )
        if self.user_header and not self.token_file:
            raise UserError(
                "anybody could name himself in the header of a proxy: name a file with a token "
                "that the proxy shows (--token-file)"
            )


class StillLife(msgspec.Struct, frozen=True):
    """A moment that is shown for ever, of a cluster that cannot be asked any more."""

    at_ms: int
    measures: Measures
    said: Mapping[str, WorkerDiagnostics] = msgspec.field(default_factory=dict)
    """What workers have logged and counted."""

    def now_ms(self) -> int:
        """The moment."""
        return self.at_ms

    def ask(self, replica: Replica) -> Measures:
        """What workers measured; addresses in it are asked nothing."""
        return self.measures

    def answer(self, question: Question, timeout_s: float) -> WindowView:
        """Raises UserError: there is no state."""
        raise UserError("a bundle has no states of tasks: ask the cluster with `onyx state`")


@contextmanager
def console_of(
    settings: Settings, options: ConsoleOptions, failed: Callable[[], None]
) -> Iterator[str]:
    """The address of a console of the cluster that settings name.

    Args:
        failed: is called when the log cannot be followed any more; the end of the block raises why.

    Raises:
        UserError: strangers could look, the certificates are not good, or the log was replaced.
        Unavailable: ZooKeeper does not answer, or the port is taken.
    """
    options.check()
    with connect(settings) as client, serving(client, settings, options, failed) as address:
        yield address


@contextmanager
def serving(
    client: Client,
    settings: Settings,
    options: ConsoleOptions,
    failed: Callable[[], None] = lambda: None,
    still: StillLife | None = None,
) -> Iterator[str]:
    """The address of a console of what a client reads. As `console_of`.

    Args:
        still: the moment of all pages, and what workers measured then; None: now, they are asked.
    """
    options.check()
    clock, http = SystemClock(), settings.http
    listener = listener_at(options.host, options.port, "--host and --port")
    with ExitStack() as stack:
        stack.callback(listener.close)
        files = ServerFiles.named_by(http.cert_file, http.key_file, http.client_ca_file, VARIABLES)
        past = stack.enter_context(followed(client, failed))
        ask = asker(client, settings) if still is None else still.ask
        answer = answerer(client, settings) if still is None else still.answer
        now_ms = clock.wall_ms if still is None else still.now_ms
        reporter = Reporter(client, past, now_ms, time.monotonic, FRESH_S, ask)
        actions = Actions(client, past, reporter.manifests) if options.has_actions else None
        appends = None if actions is None else appends_of(past, reporter.manifests, settings)
        tenancy = settings.tenancy_id
        said = {} if still is None else still.said
        console = Console(client, past, reporter, tenancy, now_ms, answer, actions, appends, said)
        guard, drawn = guard_of(options, clock)
        app = ConsoleApp(console, guard, files is not None)
        templates()
        loop = EventLoop("onyx-console")
        stack.callback(loop.close)
        server = HttpServer(http, app, listener, files)
        _on(loop, server.open())
        stack.callback(lambda: _on(loop, server.close()))
        address = f"{'https' if server.tls else 'http'}://{_shown(options)}:{server.port}/"
        yield f"{address}login?token={drawn}" if drawn else address


def guard_of(options: ConsoleOptions, clock: Clock) -> tuple[Guard, str]:
    """Who may look, and the token that was drawn for that; empty: none was."""
    if options.token_file:
        tokens = Tokens(clock, options.token_file)
        return Guard(options.hosts, tokens, author(TOKEN, "unnamed"), options.user_header), ""
    drawn = secrets.token_urlsafe(16) if options.has_actions else ""
    return Guard(options.hosts, Tokens(clock, value=drawn or None), user_of_process()), drawn


def asker(client: JobReader, settings: Settings) -> Callable[[Replica], Measures]:
    """What asks all workers what they measure."""
    reader = measure_reader(client, settings)

    def ask(replica: Replica) -> Measures:
        try:
            return reader.read(timeout_s=MEASURES_TIMEOUT_S, replica=replica)
        except OnyxError as error:  # such as a token that is not there
            return Measures(silent=dict.fromkeys(replica.groups, str(error)))

    return ask


def answerer(client: JobReader, settings: Settings) -> Answerer:
    """What asks for the states of jobs."""

    def answer(question: Question, timeout_s: float) -> WindowView:
        reader = _STATE_READER.load()(client, settings)
        return reader.read(question, timeout_s)

    return answer


def appends_of(past: Past, manifests: Manifests, settings: Settings) -> SegmentAppends:
    """What hands segments to jobs, by way of the workers that the log names."""

    def append(job: JobId, task: str, segment: dict[str, Any], level: Level, id: str) -> Answer:
        found: Answer = appending.append_once(
            past.replica, settings, job, task, [segment], level, id, APPEND_TIMEOUT_S
        )
        return found

    return SegmentAppends(past, manifests, append)


def _on(loop: EventLoop, work: object) -> None:
    running = loop.running()
    assert running is not None, "it is closed when nobody serves any more"
    assert asyncio.iscoroutine(work)
    asyncio.run_coroutine_threadsafe(work, running).result(CALL_TIMEOUT_S)


def _shown(options: ConsoleOptions) -> str:
    names: Sequence[str] = options.names or options.hosts
    return names[0]
