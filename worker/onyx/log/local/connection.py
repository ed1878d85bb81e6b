"""A client's connection to a local log, which comes back by itself: questions, answers, a session.

Any thread asks; one thread of its own sends what a socket did not take at once, reads, says that
this process lives, and connects again. Answers go to whoever has asked, or to the loop of the log.

After a break the same session goes on: the client greets with its number, and hears whether its
pulse is still there. What had no answer is asked again, and the server knows that it may have been
performed (`requests`). Only entries of a group are not: their queue hears that the answer is lost.

Invariant of `confirmed_s`: the server cannot have ended the session before this moment plus the
session timeout. So it is the moment at which the last question that has an answer was sent, without
those that wait for something to happen.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from onyx.base.structs import UNREADABLE
from onyx.errors import Fenced, LogReplaced, OnyxError, SettingsError, Unavailable
from onyx.ids import GroupId
from onyx.log.interface import Session
from onyx.log.local.frames import (
    ANSWERS,
    PROTOCOL,
    RECEIVE_BYTES,
    Frames,
    LogAnswer,
    LogQuestion,
    framed,
    reach,
    waker,
)
from onyx.log.local.requests import (
    AnyRequest,
    AwaitPulseGone,
    EndSession,
    FollowLog,
    ForgetQuestion,
    Greeting,
    Ping,
)
from onyx.log.loop import Loop
from onyx.reports.measures import ZooKeeperMeasures
from onyx.settings import Settings
from onyx.telemetry.catalog import ZOOKEEPER_LATENCIES_S
from onyx.telemetry.tallies import Tally

logger = logging.getLogger("onyx.log")
PINGS_PER_SESSION = 6
SILENT_PART = 2 / 3
"""A server that is silent for this part of a session is given up, and looked for again."""
GREETING_PART = 1 / 3
TELL_AFTER_S = 2.0
"""How long is waited for a server until it is said for what."""
BACK_OFF_MAX_S = 0.5
LEAVE_S = 1.0
_WAITING = (FollowLog, AwaitPulseGone)


class AnswerLost(OnyxError):
    """The connection broke before the answer; used inside `onyx.log` only."""


class LogConnection:
    """A connection that is there.

    Raises:
        Unavailable: nobody served the log within `connect_timeout_s`.
        LogReplaced: it is not the one that this process knew.
        UserError: the server takes no such client.
    """

    def __init__(
        self, settings: Settings, group: GroupId | None = None, identity: int | None = None
    ) -> None:
        """
        Args:
            settings: what leads there, and how long a session is.
            group: whose session ends for good when its pulse is gone; None: a client.
            identity: that of the log that this process knew before.
        """
        self.folder = Path(settings.log.folder)
        self.session_timeout_s = settings.zookeeper.session_timeout_s
        self._patience_s = settings.zookeeper.connect_timeout_s
        self._back_off_s = settings.zookeeper.reconnect_back_off_s
        self._tenancy = settings.tenancy_id
        self._group, self._session = group, secrets.randbits(62)
        self._identity = identity
        self.has_pulse = False
        """Whether the pulse of the group is registered, so that it can be lost."""
        self.loop = Loop("onyx-log")
        self.listener: Callable[[Session], None] = lambda _: None
        """Hears, on the loop, what happens to the session."""
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._asked: dict[int, _AskedQuestion] = {}
        self._owed = bytearray()
        self._socket: socket.socket | None = None
        self._over: OnyxError | None = None
        """Why nothing can be asked any more."""
        self._why = ""
        """Why the server lets nobody in for now."""
        self._confirmed_s = time.monotonic()
        self._requests = Tally(ZOOKEEPER_LATENCIES_S)
        self._bytes = [0, 0]
        self._stopping = threading.Event()
        self._wake, self._woken = waker()
        try:
            self._connect_first()
        except BaseException:
            self.loop.stop()
            self._release()
            raise
        self._thread = threading.Thread(target=self._run, name="onyx-log-socket", daemon=True)
        self._thread.start()

    @property
    def identity(self) -> int:
        """Distinguishes the log from one made anew."""
        assert self._identity is not None, "it is connected"
        return self._identity

    def confirmed_s(self) -> float:
        """Monotonic time at which the session was alive for certain."""
        return self._confirmed_s

    def check(self) -> None:
        """Raises what ended the use of the log: Fenced, Unavailable (closed), LogReplaced."""
        if self._over is not None:
            raise self._over

    def ask(self, request: AnyRequest, done: Callable[[Any], None]) -> int:
        """Ask; `done` gets what it gives, or the exception, on this thread or that of the
        connection: it must only put that somewhere. The number of the question. Never waits."""
        with self._lock:
            number, asked = next(self._numbers), _AskedQuestion(request, done)
            if self._over is None and (self._socket is not None or request.REPEATED):
                self._asked[number] = asked
                try:
                    self._transmit(number, asked)
                except OnyxError as error:  # it is too large
                    del self._asked[number]
                    done(error)
            else:
                # Under the lock: who asks again when there is a connection has heard this before.
                done(self._over or AnswerLost("there is no connection"))
        return number

    def forget(self, number: int) -> None:
        """A question needs no answer any more."""
        with self._lock:
            if self._asked.pop(number, None) is not None:
                self.ask(ForgetQuestion(number), lambda _: None)

    def perform(self, request: AnyRequest, patience_s: float | None = None) -> Any:
        """What a request gives. Waits.

        Raises:
            OnyxError: why it was refused; Unavailable: no answer in time.
        """
        assert not self.loop.is_current_thread(), "a callback of the log must not wait for it"
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        number = self.ask(request, answers.put)
        try:
            answer = answers.get(timeout=self._patience_s if patience_s is None else patience_s)
        except queue.Empty:
            self.forget(number)
            self.check()
            raise Unavailable(
                f"the log in {self.folder} has not answered for {self._patience_s:g} s; is the "
                "process that serves it running?"
            ) from None
        if isinstance(answer, OnyxError):
            raise answer
        return answer

    def traffic(self) -> ZooKeeperMeasures:
        """What has passed on this connection; from any thread."""
        waiting = sum(isinstance(each.request, _WAITING) for each in tuple(self._asked.values()))
        sent, received = self._bytes
        return ZooKeeperMeasures(self._requests.durations(), sent, received, waiting)

    def close(self) -> None:
        """End the session, so that its pulse is gone at once, and the threads. Idempotent."""
        if self.has_pulse and self._over is None and not self.loop.is_current_thread():
            with suppress(OnyxError):
                self.perform(EndSession(), LEAVE_S)
        self._stopping.set()
        self._end(Unavailable("the log was closed"))
        self._awake()
        self._thread.join(self._patience_s)
        self.loop.stop()
        self._release()

    def _connect_first(self) -> None:
        start_s = time.monotonic()
        tell_s = start_s + TELL_AFTER_S
        while not self._connect():
            now_s = time.monotonic()
            if now_s > start_s + self._patience_s:
                raise Unavailable(
                    self._why
                    or f"nobody serves a log in {self.folder}, for {self._patience_s:g} s: start "
                    f"`onyx log-server {self.folder}`, or say where the log of the cluster is: "
                    "--log FOLDER (ONYX_LOG_FOLDER), or --zookeeper (ONYX_ZOOKEEPER_ADDRESS); what "
                    "a run has left there is read by `onyx events`, `bundle` and `console` with "
                    "--kept FOLDER"
                )
            if now_s > tell_s:
                tell_s = float("inf")
                logger.warning(
                    "waiting for a log in %s, for up to %g s (onyx log-server serves one)",
                    self.folder,
                    self._patience_s,
                )
            self._stopping.wait(self._back_off_s)
        self.check()

    def _connect(self) -> bool:
        """Greet, and ask again what has no answer; False if nobody is there."""
        patience_s = self.session_timeout_s * GREETING_PART
        try:
            connection = reach(self.folder, patience_s)
        except PermissionError as error:
            raise SettingsError(
                f"the log in {self.folder} belongs to another user: {error.strerror}"
            ) from error
        except OSError:
            return False
        sent_s = time.monotonic()
        pulse = self._group if self.has_pulse else None
        hello = Greeting(PROTOCOL, self._tenancy, self._session, self.session_timeout_s, pulse)
        try:
            identity, alive = _greeting(connection, hello, patience_s)
        except (OSError, *UNREADABLE):
            connection.close()
            return False
        except Unavailable as error:  # its disk is full
            connection.close()
            self._why = str(error)
            return False
        except OnyxError as error:
            connection.close()
            self._end(error)
            return True
        if self._identity not in (None, identity):
            self._end(self._replaced())
        elif pulse is not None and not alive:
            self._end(Fenced("the session has expired; start again as a new incarnation"))
        if self._over is not None:
            connection.close()
            return True
        self._identity = identity
        self._confirm(sent_s)
        with self._lock:
            self._socket = connection
            for number, asked in self._asked.items():
                self._transmit(number, asked)
        return True

    def _run(self) -> None:
        while self._over is None:
            assert self._socket is not None
            with suppress(OSError, *UNREADABLE):
                self._converse(self._socket)
            self._break()
            if self._over is None:
                self._tell(Session.SUSPENDED)
                self._come_back()
        if not self._stopping.is_set():
            self._tell(Session.LOST)

    def _come_back(self) -> None:
        delay_s = self._back_off_s
        while self._over is None:
            try:
                if self._connect():
                    break
            except OnyxError as error:
                self._end(error)
            self._stopping.wait(delay_s)
            delay_s = min(2 * delay_s, BACK_OFF_MAX_S)
        if self._over is None:
            self._tell(Session.CONNECTED)

    def _converse(self, connection: socket.socket) -> None:
        """Until the connection breaks. Raises OSError, or ValueError for what is no answer."""
        frames, poll = Frames(), select.poll()
        poll.register(self._wake, select.POLLIN)
        interval_s = self.session_timeout_s / PINGS_PER_SESSION
        heard_s = ping_s = time.monotonic()
        while self._over is None:
            poll.register(connection, select.POLLIN | (select.POLLOUT if self._owed else 0))
            patience_s = max(0.0, ping_s + interval_s - time.monotonic())
            for descriptor, events in poll.poll(patience_s * 1_000 + 1):
                if descriptor == self._wake:
                    os.read(self._wake, 64)
                    continue
                if events & select.POLLOUT:
                    with self._lock:
                        self._flush()
                if events & ~select.POLLOUT:
                    data = connection.recv(RECEIVE_BYTES)
                    if not data:
                        return
                    heard_s = time.monotonic()
                    self._bytes[1] += len(data)
                    for frame in frames.taken(data):
                        self._answered(ANSWERS.decode(frame))
            now_s = time.monotonic()
            if now_s - heard_s > self.session_timeout_s * SILENT_PART:
                return
            if now_s >= ping_s + interval_s:
                ping_s = now_s
                self.ask(Ping(), lambda _: None)

    def _answered(self, answer: LogAnswer) -> None:
        with self._lock:
            asked = self._asked.pop(answer.number, None)
        if asked is None:  # it was forgotten meanwhile
            return
        if not isinstance(asked.request, _WAITING):
            self._requests.observe(time.monotonic() - asked.sent_s)
            self._confirm(asked.sent_s)
        asked.done(answer.refusal() or answer.value)

    def _confirm(self, sent_s: float) -> None:
        # Never backward: answers come in any order of the moments at which questions were sent.
        self._confirmed_s = max(self._confirmed_s, sent_s)

    def _transmit(self, number: int, asked: _AskedQuestion) -> None:
        """Under the lock: send a question, if there is a connection; else that is done later. One
        that is too large is refused at once: later it would end the connection for all."""
        frame = framed(LogQuestion(number, asked.request, asked.sent_s > 0))
        if self._socket is not None:
            asked.sent_s = time.monotonic()
            self._owed += frame
            self._bytes[0] += len(frame)
            self._flush()

    def _flush(self) -> None:
        """Under the lock: send what the socket takes; the thread of the connection sends the rest,
        and it is the one that hears of a break."""
        with suppress(OSError):
            while self._owed and self._socket is not None:
                del self._owed[: self._socket.send(self._owed)]
        if self._owed:
            self._awake()

    def _awake(self) -> None:
        with suppress(OSError):
            os.write(self._woken, b"x")

    def _break(self) -> None:
        """The connection is over: who would not ask again hears it."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            self._owed.clear()
            lost = [
                n for n, each in self._asked.items() if each.sent_s and not each.request.REPEATED
            ]
            over = [self._asked.pop(number) for number in lost]
        for each in over:
            each.done(AnswerLost("the connection broke"))

    def _replaced(self) -> LogReplaced:
        return LogReplaced(
            f"the log in {self.folder} was deleted and made anew: positions start again, so "
            "nothing may go on from what was known. Restore the folder from a copy, or delete it "
            "as a whole (this forgets all jobs) and start every worker again"
        )

    def _end(self, error: OnyxError) -> None:
        with self._lock:
            self._over = self._over or error
            asked = tuple(self._asked.values())
            self._asked.clear()
        for each in asked:
            each.done(self._over)

    def _tell(self, session: Session) -> None:
        self.loop.call(lambda: self.listener(session))

    def _release(self) -> None:
        with self._lock:
            self._break()
            if self._wake >= 0:
                os.close(self._wake)
                os.close(self._woken)
                self._wake = self._woken = -1


class _AskedQuestion:
    __slots__ = ("done", "request", "sent_s")

    def __init__(self, request: AnyRequest, done: Callable[[Any], None]) -> None:
        self.request = request
        self.done = done
        self.sent_s = 0.0
        """0: never yet."""


def _greeting(connection: socket.socket, hello: Greeting, patience_s: float) -> tuple[int, bool]:
    """The answer to a greeting. Raises OSError, ValueError: there is none; OnyxError: a refusal."""
    connection.settimeout(patience_s)
    connection.sendall(framed(LogQuestion(0, hello)))
    frames, found = Frames(), None
    while found is None:
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError
        found = next(frames.taken(data), None)
    answer = ANSWERS.decode(found)
    if (refusal := answer.refusal()) is not None:
        raise refusal
    connection.setblocking(False)
    identity, alive = answer.value
    return identity, alive
