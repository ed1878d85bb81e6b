"""The server of a local log: one thread that answers all connections, turn by turn.

A turn takes what has come on all sockets. What it changes of a tenancy is one transaction, however
many have asked: a commit that waits for the disk is shared by all appends that came meanwhile.
Answers follow the commit. Then questions that wait are looked at again.

Nobody holds the others up. Sockets never block. Who does not read its answers is not read from, so
that what waits for it is bounded. Whose connection is silent for its session timeout is cut off.

A pulse is the connection of who has registered it, in a way that survives a break. It goes when its
session ends in order, when nothing has come for the session timeout, and, where the system says
that (Linux), at the moment at which the process has ended. A connection that ends says nothing
alone: a child of the process may hold it open, and this server may have been frozen. Pulses are in
the file, so a server that starts again knows them, and gives each its session timeout once more;
so does one that finds that it has slept itself.
"""

from __future__ import annotations

import fcntl
import logging
import os
import selectors
import socket
import sqlite3
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path

from onyx.base.path_names import path_name
from onyx.base.structs import UNREADABLE
from onyx.errors import InvariantViolated, OnyxError, SettingsError, Unavailable, UserError
from onyx.ids import GroupId
from onyx.log.local.frames import (
    PROTOCOL,
    QUESTIONS,
    RECEIVE_BYTES,
    SOCKET,
    Frames,
    LogAnswer,
    LogQuestion,
    framed,
    listen,
    waker,
)
from onyx.log.local.requests import (
    WAITS,
    EndSession,
    ForgetQuestion,
    Greeting,
    LogRequest,
    RegisterPulse,
)
from onyx.log.local.store import ENDED, ENDING, Pulse, TenancyFile

logger = logging.getLogger("onyx.log")
CONNECTIONS_MAX = 1_000
TENANCIES_MAX = 100
WAITING_MAX = 1_000
"""Questions of one connection that are answered later."""
OWED_BYTES_MAX = 4_194_304
"""Bytes of answers above which a connection is not read from."""
TURN_BYTES_MAX = 4 * RECEIVE_BYTES
"""So much is read of one connection before the others have their turn."""
LOOK_S = 1.0
"""Longest wait until pulses are looked at."""
SLEPT_S = 2.0
"""A turn that took longer was none of a server that runs."""
START_S = 15.0
REFUSED_S = 0.05
"""A pause, because a connection that cannot be taken is offered again at once."""
PRIVATE_FOLDER = 0o700
_CREDENTIALS = struct.Struct("3i")


class LocalLogServer:
    """Serves the logs in a folder to who may enter it, from `start` to `stop`."""

    def __init__(self, folder: Path, kept: bool = True, alone: bool = False) -> None:
        """
        Args:
            folder: of the logs.
            kept: whether commits are written through to the disk (`store`).
            alone: whether all clients end with this process, so that no pulse of a former one is
                alive.
        """
        self.folder = folder
        self._kept, self._alone = kept, alone
        self._selector: selectors.BaseSelector = selectors.DefaultSelector()
        self._stores: dict[str, TenancyFile] = {}
        self._links: set[ServerLink] = set()
        self._wake, self._woken = waker()
        self._started, self._stopping = threading.Event(), False
        self._failure: OnyxError | None = None
        self._looked_s = time.monotonic()
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name="onyx-log-server", daemon=True)

    def start(self) -> None:
        """Serve.

        Raises:
            SettingsError: another server has the folder, or it cannot be used.
            Unavailable: it takes too long.
        """
        try:
            self._thread.start()
            if not self._started.wait(START_S):
                raise Unavailable(f"the log in {self.folder} was not served within {START_S:g} s")
            self.check()
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raises why it serves no more, if it has ended by itself."""
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> LocalLogServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End; the logs stay in the folder. Idempotent."""
        self._stopping = True
        if self._woken < 0:
            return
        os.write(self._woken, b"x")
        if self._thread.ident is not None:
            self._thread.join(START_S)
        # Not by the thread: if it ends by itself, their numbers may be those of other files here.
        os.close(self._wake)
        os.close(self._woken)
        self._wake = self._woken = -1

    def _run(self) -> None:
        try:
            with held_alone(self.folder):
                self._serve()
        except OnyxError as error:
            self._failure = error
        except OSError as error:
            self._failure = SettingsError(
                f"no log can be served from {self.folder}: {error.strerror or error}"
            )
        except Exception as error:
            logger.exception("the server of the log in %s has ended", self.folder)
            self._failure = InvariantViolated(f"the server of a log has ended: {error!r}")
        finally:
            self._selector.close()
            self._started.set()

    def _serve(self) -> None:
        accepting = listen(self.folder, CONNECTIONS_MAX)
        ours = (self.folder / SOCKET).stat()
        self._selector.register(accepting, selectors.EVENT_READ, None)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._started.set()
        try:
            while not self._stopping:
                self._turn(accepting)
        finally:
            with suppress(OSError):  # of a folder that was deleted and made anew it is another's
                if os.path.samestat((self.folder / SOCKET).stat(), ours):
                    (self.folder / SOCKET).unlink()
            for link in tuple(self._links):
                self._cut(link)
            for store in self._stores.values():
                store.close()
            accepting.close()

    def _turn(self, accepting: socket.socket) -> None:
        asked: dict[TenancyFile | None, list[tuple[ServerLink, LogQuestion]]] = {}
        for key, events in self._selector.select(self._patience_s()):
            if key.fileobj is accepting:
                self._accept(accepting)
            elif isinstance(key.data, Pulse):
                key.data.heard_s = ENDED
                key.data.release()
            elif isinstance(key.data, ServerLink) and key.data in self._links:
                for question in self._received(key.data, events):
                    asked.setdefault(key.data.store, []).append((key.data, question))
        for link, question in asked.pop(None, ()):
            self._greet(link, question)
        for store, questions in asked.items():
            assert store is not None
            self._answer(store, questions)
        self._look()
        for link in tuple(self._links):
            self._send(link)

    def _accept(self, accepting: socket.socket) -> None:
        try:
            connection, _ = accepting.accept()
        except OSError as error:  # gone again, or no descriptor is left
            self._complain(f"the log in {self.folder} takes no connection: {error.strerror}")
            time.sleep(REFUSED_S)
            return
        if len(self._links) >= CONNECTIONS_MAX:
            self._complain(f"the log in {self.folder} has {CONNECTIONS_MAX} connections: no more")
            connection.close()
            return
        connection.setblocking(False)
        link = ServerLink(connection)
        self._links.add(link)
        self._selector.register(connection, selectors.EVENT_READ, link)

    def _received(self, link: ServerLink, events: int) -> Iterable[LogQuestion]:
        if not events & selectors.EVENT_READ:
            return ()
        try:
            frames, over = link.read()
            questions = [QUESTIONS.decode(each) for each in frames]
            if questions and link.store is None and not isinstance(questions[0].request, Greeting):
                raise ValueError("it does not begin with a greeting")
        except UNREADABLE as error:
            self._complain(f"what connects to the log in {self.folder} is no client of it: {error}")
            questions, over = [], True
        if over:
            self._cut(link)
        return questions

    def _greet(self, link: ServerLink, question: LogQuestion) -> None:
        """The first question of a connection. What has come with it is a breach of the rules, which
        no client of ours makes."""
        hello = question.request
        if link.store is not None or not isinstance(hello, Greeting) or link not in self._links:
            self._cut(link)
            return
        try:
            link.store = self._store(hello)
        except OnyxError as error:
            link.put(LogAnswer.refusing(question.number, error))
            return
        link.session, link.timeout_s = hello.session, hello.timeout_s
        pulse = None if hello.pulse is None else link.store.pulses.get(hello.pulse)
        alive = pulse is not None and pulse.session == hello.session
        if pulse is not None and alive:
            self._hold(link, pulse)
        link.put(LogAnswer(question.number, (link.store.identity, alive)))

    def _store(self, hello: Greeting) -> TenancyFile:
        if hello.protocol != PROTOCOL:
            raise UserError(
                f"the log in {self.folder} is served by another version of Onyx, which speaks "
                f"protocol {PROTOCOL}, and this one {hello.protocol}: use the same one"
            )
        name = path_name(hello.tenancy, "a tenancy id")
        if name not in self._stores:
            if len(self._stores) >= TENANCIES_MAX:
                raise UserError(f"the log in {self.folder} has {TENANCIES_MAX} tenancies: no more")
            try:
                store = TenancyFile(self.folder / f"{name}{ENDING}", self._kept)
                if self._alone:
                    self._end(store, list(store.pulses))
                self._stores[name] = store
            except sqlite3.Error as error:
                raise self._unwritten(error) from error
        return self._stores[name]

    def _answer(self, store: TenancyFile, questions: list[tuple[ServerLink, LogQuestion]]) -> None:
        """One transaction for all; if that fails, one for each: questions are not refused because
        somebody else's entry found no room."""
        answers: list[tuple[ServerLink, LogAnswer | None]] = []
        before = store.next, store.origin, len(store.pulses)
        after = before
        try:
            with store.transaction():
                answers.extend((link, self._applied(store, link, each)) for link, each in questions)
            after = store.next, store.origin, len(store.pulses)
        except (sqlite3.Error, OverflowError) as error:
            if len(questions) > 1:
                for each in questions:
                    self._answer(store, [each])
                return
            ((link, question),) = questions
            answers = [(link, LogAnswer.refusing(question.number, self._refusal(error)))]
        for link, answer in answers:
            if answer is not None:
                link.put(answer)
        if after != before:
            self._look_at_waiting(store)

    def _applied(
        self, store: TenancyFile, link: ServerLink, question: LogQuestion
    ) -> LogAnswer | None:
        number, request = question.number, question.request
        try:
            match request:
                case Greeting():
                    raise UserError("a connection greets once")
                case ForgetQuestion():
                    link.waiting.pop(request.number, None)
                case EndSession():
                    self._drop(
                        store, [g for g, p in store.pulses.items() if p.session == link.session]
                    )
                    link.pulse = None
            value = request.apply(store, link.session, question.again)
        except OnyxError as error:
            return LogAnswer.refusing(number, error)
        if isinstance(request, RegisterPulse):
            self._hold(link, store.pulses[request.group])
        if value is not WAITS:
            return LogAnswer(number, value)
        if len(link.waiting) >= WAITING_MAX:
            return LogAnswer.refusing(number, Unavailable(f"{WAITING_MAX} questions wait already"))
        link.waiting[number] = request
        return None

    def _look_at_waiting(self, store: TenancyFile) -> None:
        for link in self._links:
            if link.store is not store:
                continue
            for number, request in tuple(link.waiting.items()):
                try:
                    value = request.apply(store, link.session, True)
                    answer = None if value is WAITS else LogAnswer(number, value)
                except sqlite3.Error as error:
                    answer = LogAnswer.refusing(number, self._unwritten(error))
                if answer is not None:
                    del link.waiting[number]
                    link.put(answer)

    def _look(self) -> None:
        """Who has been silent for too long?"""
        now_s = time.monotonic()
        slept = now_s - self._looked_s > LOOK_S + SLEPT_S
        self._looked_s = now_s
        for each in self._links:
            each.heard_s = now_s if slept else each.heard_s
        for link in [each for each in self._links if now_s - each.heard_s > each.timeout_s]:
            self._cut(link)
        for store in self._stores.values():
            for pulse in store.pulses.values():
                if slept:
                    pulse.heard(now_s)
            gone = [g for g, p in store.pulses.items() if now_s - p.heard_s > p.timeout_s]
            if gone:
                self._end(store, gone)
        for link in [each for each in self._links if each.pulse and each.pulse.is_gone]:
            self._cut(link)  # when it connects again it hears that its pulse is gone

    def _end(self, store: TenancyFile, groups: list[GroupId]) -> None:
        """Their sessions are over; if that cannot be written they are not, and it is tried again:
        nobody hears of an end that a restart would undo. Not at once: the server would do nothing
        else."""
        try:
            with store.transaction():
                self._drop(store, groups)
            self._look_at_waiting(store)
        except sqlite3.Error as error:
            self._unwritten(error)
            for group in store.pulses.keys() & groups:
                store.pulses[group].heard_s = time.monotonic()

    def _drop(self, store: TenancyFile, groups: list[GroupId]) -> None:
        for group in groups:
            store.change("DELETE FROM pulse WHERE owner = ?", group)
            pulse = store.pulses.pop(group)
            pulse.release()
            pulse.is_gone = True

    def _hold(self, link: ServerLink, pulse: Pulse) -> None:
        """The connection speaks for a pulse from now on."""
        link.pulse = pulse
        pulse.heard_s = time.monotonic()
        pulse.release()
        process = link.process()
        if process and hasattr(os, "pidfd_open"):
            with suppress(OSError):  # gone already: it falls silent
                watched = os.pidfd_open(process)
                self._selector.register(watched, selectors.EVENT_READ, pulse)
                pulse.unwatch = partial(self._unwatch, watched)

    def _unwatch(self, process: int) -> None:
        self._selector.unregister(process)
        os.close(process)

    def _send(self, link: ServerLink) -> None:
        """What the socket takes of what a connection is owed."""
        if link not in self._links:
            return
        try:
            left = link.flush()
        except OSError:
            self._cut(link)
            return
        reads = selectors.EVENT_READ if left <= OWED_BYTES_MAX else 0
        events = reads | (selectors.EVENT_WRITE if left else 0)
        if events != link.events:
            link.events = events
            self._selector.modify(link.connection, events, link)

    def _cut(self, link: ServerLink) -> None:
        if link in self._links:
            self._links.remove(link)
            self._selector.unregister(link.connection)
            link.connection.close()

    def _patience_s(self) -> float:
        pulses = (p for store in self._stores.values() for p in store.pulses.values())
        due_s = min((each.heard_s + each.timeout_s for each in pulses), default=inf)
        return min(LOOK_S, max(0.0, due_s - time.monotonic()))

    def _refusal(self, error: sqlite3.Error | OverflowError) -> OnyxError:
        if isinstance(error, sqlite3.Error):
            return self._unwritten(error)
        return UserError(f"the log in {self.folder} counts no further than 2^63: {error}")

    def _unwritten(self, error: sqlite3.Error) -> Unavailable:
        """What whoever asks is to hear; whoever runs the server hears it once."""
        full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
        remedy = "free space on its disk, and all goes on" if full else "see to its disk"
        message = f"the log in {self.folder} cannot be read or written ({error}): {remedy}"
        self._complain(message)
        return Unavailable(message)

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            logger.warning("%s", complaint)


class ServerLink:
    """One connection, as the server sees it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.store: TenancyFile | None = None
        """None before the greeting."""
        self.session = 0
        self.timeout_s = START_S
        self.heard_s = time.monotonic()
        self.pulse: Pulse | None = None
        self.waiting: dict[int, LogRequest] = {}
        self.events = int(selectors.EVENT_READ)
        self._frames = Frames()
        self._owed = bytearray()

    def read(self) -> tuple[list[bytes], bool]:
        """The frames that have come, and whether the connection is over. Raises ValueError."""
        frames: list[bytes] = []
        for _ in range(TURN_BYTES_MAX // RECEIVE_BYTES):
            try:
                data = self.connection.recv(RECEIVE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                return frames, True
            self.heard_s = time.monotonic()
            if self.pulse is not None:
                self.pulse.heard(self.heard_s)
            frames += self._frames.taken(data)
        return frames, False

    def put(self, answer: LogAnswer) -> None:
        """Owe an answer."""
        try:
            self._owed += framed(answer)
        except UserError as error:
            self._owed += framed(LogAnswer.refusing(answer.number, error))

    def flush(self) -> int:
        """Send what goes; how many bytes are left. Raises OSError: the connection is over."""
        with suppress(BlockingIOError):
            while self._owed:
                del self._owed[: self.connection.send(self._owed)]
        return len(self._owed)

    def process(self) -> int:
        """The number of the process at the other end; 0: that is not known."""
        if not hasattr(socket, "SO_PEERCRED"):
            return 0
        found = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(found)[0])


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Nobody else has a server there: two in one folder would write over each other's log.

    Raises:
        SettingsError: somebody has, or it cannot be made.
    """
    try:
        folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SettingsError(f"no log can be kept in {folder}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SettingsError(
                f"the log in {folder} is in use: end that `onyx run`, `onyx console` or `onyx "
                "log-server` first"
            ) from error
        yield
    finally:
        os.close(held)
