"""Asks for a state of a job: peers over gRPC, with the certificates and the token of the settings;
or reads it where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onyx.base.seams import SystemClock
from onyx.client.connection import connect
from onyx.client.reader import JobReader
from onyx.client.state_reader import TIMEOUT_S, StateReader
from onyx.client.stored_state import KeptStates
from onyx.client.window_view import EXTENTS_DEFAULT, Question, WindowView
from onyx.ids import JobId
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.requests.tokens import ClientToken
from onyx.settings import Settings
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.grpc_state_queries import ask
from onyx.transport.state_queries import StateAnswer, StateQuery


def state_reader(
    client: JobReader, settings: Settings, token: Callable[[], str] | None = None
) -> StateReader:
    """A reader that asks over gRPC, and reads logs where nobody can be asked.

    Args:
        token: gives the token that is shown to workers; None: the one that settings name.

    Raises:
        SettingsError: the certificates that settings name are not good.
    """
    files = CertificateFiles.named_by(settings.tls, GROUPS, serves=False)
    shown = token or ClientToken(settings.client, SystemClock())

    def dial(address: str, query: StateQuery, timeout_s: float) -> StateAnswer:
        return ask(address, query, settings.transport, files, timeout_s, shown())

    return StateReader(client, settings.tenancy_id, dial, KeptStates(settings))


def window_state(
    settings: Settings,
    job: JobId,
    window: str,
    select: Selection = EVERYTHING,
    extents_max: int = EXTENTS_DEFAULT,
    durable: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> WindowView:
    """What a window, or another state of a job, is at this moment, asked of the peers that have it;
    of a job that was killed or is suspended, what its state log says; of one on Spark, what the
    last micro-batch has committed.

    Args:
        settings: those of a worker: what leads to ZooKeeper and to the state, and the certificates
            of `tls`; and the token of `client`.
        job: its id or the beginning of that, or its name.
        window: its id; `task.state` for a state of a function; the name of a table, a join of
            streams, or a task with a processor.
        select: which groups and extents; all without.
        extents_max: the first so many extents, by group and lower bound; `next` of the answer leads
            to those behind.
        durable: only what no crash takes back; comes up to `ONYX_STATE_CHUNK_INTERVAL_S` later.
        timeout_s: how long a job that is being re-allocated is waited for.

    Raises:
        UserError: there is no such job or state, it is not kept, the question makes no sense.
        Unavailable: not all peers concerned could answer in time.
    """
    with connect(settings) as client:
        reader = state_reader(client, settings)
        question = Question(client.named(job), window, select, extents_max, durable)
        return reader.read(question, timeout_s)


def window_pages(
    settings: Settings,
    job: JobId,
    window: str,
    select: Selection = EVERYTHING,
    extents_max: int = EXTENTS_DEFAULT,
    durable: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[WindowView]:
    """All that a window has gathered, in pages of so many extents. Each page is of a moment of its
    own: an extent that is there all the time comes once. See `window_state`."""
    with connect(settings) as client:
        reader = state_reader(client, settings)
        question = Question(client.named(job), window, select, extents_max, durable)
        yield from reader.pages(question, timeout_s)
