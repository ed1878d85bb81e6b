"""Answers questions about states, and about what workers measure, that come over HTTP
(`gateway/states`): any worker asks the others.

Asking takes threads, of which there are few, and each has a client of its own: what is behind them
waits until its time is over. A client is made when it is first needed, so that a worker that
nobody asks has no more connections.
"""

from __future__ import annotations

import asyncio
import queue
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec.structs import asdict

from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.client.measures import TIMEOUT_S, measure_reader
from onyx.client.query import state_reader
from onyx.client.states.kinds import states_of
from onyx.client.window_view import Question, WindowView, arrow_stream, json_document, json_line
from onyx.codec.questions import encode_place
from onyx.errors import OnyxError, Unavailable
from onyx.gateway.states import AskedState, ShownState, StateForm
from onyx.ids import JobId
from onyx.settings import Settings
from onyx.transport.state_queries import MEASURES

THREADS = 4


class ServedStates:
    """Implements `gateway.states.StateService`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(THREADS, "onyx-states")
        self._clients: queue.SimpleQueue[Client] = queue.SimpleQueue()

    async def answer(self, asked: AskedState) -> ShownState:
        """The answer, worked out on another thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._answer, asked)

    def close(self) -> None:
        """Answer nothing any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        while (client := self._idle()) is not None:
            client.close()

    def _answer(self, asked: AskedState) -> ShownState:
        client = self._idle() or connect(self._settings)
        try:
            shown = self._shown(client, asked)
        except Unavailable:
            client.close()  # perhaps it is its own connection that is lost
            raise
        except OnyxError:
            self._clients.put(client)
            raise
        except BaseException:
            client.close()
            raise
        self._clients.put(client)
        return shown

    def _shown(self, client: Client, asked: AskedState) -> ShownState:
        job = JobId(asked.job)

        def token() -> str:
            """Where workers have no certificates, the others want to see the token too."""
            return asked.caller.token.decode("latin-1")

        if asked.state == MEASURES:
            client.job(job)  # or there is no such job
            within_s = min(TIMEOUT_S, asked.timeout_s / 2)
            measured = measure_reader(client, self._settings, token).read(job, within_s)
            joined = {"tasks": measured.tasks, "edges": measured.edges}
            return ShownState(msgspec.json.encode({**joined, **asdict(measured)}))
        if not asked.state:
            names = [
                {"state": each.name, "task": each.task, "kind": each.kind, "grouped": each.grouped}
                for each in states_of(client.job(job))
            ]
            return ShownState(json_document({"states": names}))
        question = Question(job, asked.state, asked.select, asked.extents_max, asked.durable)
        view = state_reader(client, self._settings, token).read(question, asked.timeout_s)
        following = "" if view.next is None else encode_place(view.next)
        return ShownState(body_of(view, asked.form, following), following)

    def _idle(self) -> Client | None:
        try:
            return self._clients.get_nowait()
        except queue.Empty:
            return None


def body_of(view: WindowView, form: StateForm, following: str) -> bytes:
    """An answer in one of the forms."""
    if form is StateForm.ARROW:
        return arrow_stream(view.record_batch())
    lines = [json_line(extent, view.by_session_key) for extent in view.extents]
    if form is StateForm.LINES:
        return "".join(f"{line}\n" for line in lines).encode()
    after = f'"{following}"' if following else "null"
    return f'{{"extents": [{", ".join(lines)}], "next": {after}}}'.encode()
