"""The file of one tenancy: a database of SQLite, and what of it the server keeps in memory.

All changes of one turn of the server are one transaction, and nobody is answered before it is
committed. If that fails, nothing of it has happened: what is in memory is read again from the file.

A log that is kept is written through to the disk with each commit (`synchronous=FULL`), so neither
a process nor a machine that dies loses what was answered. One that goes with its run is not: what a
machine lost nobody would look for. In both a process that is killed loses nothing.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from onyx.errors import StateError
from onyx.ids import NO_POSITION, GroupId

FORMAT = 1
ENDING = ".sqlite"
ENDED = float("-inf")
BUSY_S = 1.0
"""Longest wait for somebody who looks at the file with a program of SQLite."""
_TABLES = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE entry (position INTEGER PRIMARY KEY, data BLOB NOT NULL, token BLOB);
CREATE UNIQUE INDEX entry_by_token ON entry (token) WHERE token IS NOT NULL;
CREATE TABLE chunk (
    digest TEXT PRIMARY KEY, data BLOB NOT NULL, touches INTEGER NOT NULL, at_ms INTEGER NOT NULL
);
CREATE TABLE document (
    folder TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (folder, name)
);
CREATE TABLE pulse (owner TEXT PRIMARY KEY, session INTEGER NOT NULL, timeout_s REAL NOT NULL);
"""


class Pulse:
    """That the incarnation of a group lives, as far as the server knows."""

    def __init__(self, session: int, timeout_s: float) -> None:
        self.session = session
        self.timeout_s = timeout_s
        self.heard_s = time.monotonic()
        """When its connection was heard last; ENDED if its process has ended."""
        self.is_gone = False
        self.unwatch: Callable[[], None] | None = None
        """Ends the watch over its process."""

    def heard(self, now_s: float) -> None:
        """Its connection was heard."""
        if self.heard_s != ENDED:
            self.heard_s = now_s

    def release(self) -> None:
        """Watch its process no more."""
        if self.unwatch is not None:
            self.unwatch()
            self.unwatch = None


class TenancyFile:
    """What is read and written of one tenancy. It belongs to one thread at a time.

    Raises:
        StateError: the file is damaged, or is none of ours.
        sqlite3.Error: it cannot be opened or written.
    """

    def __init__(self, file: Path, kept: bool) -> None:
        """`kept`: whether each commit is written through to the disk."""
        self.file = file
        self.pulses: dict[GroupId, Pulse] = {}
        self.next, self.origin = 0, int(NO_POSITION)
        """The position of the next entry, and that of the origin."""
        self._stale = False
        """What is in memory may be what was not committed."""
        with suppress(OSError):  # SQLite says why it cannot be opened
            file.touch(0o600)  # what SQLite makes beside it is as private
        self._db = sqlite3.connect(
            file, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            is_new = self._is_new()
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA synchronous = {'FULL' if kept else 'NORMAL'}")
            if is_new:
                self._make()
            self.identity = int(self.fact("identity"))
            self._load()
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(
                error, sqlite3.OperationalError
            ):
                raise self._unreadable(str(error)) from error
            raise

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """What a statement gives."""
        return self._db.execute(statement, values).fetchall()

    def each(self, statement: str, *values: Any) -> Iterator[Any]:
        """What a statement gives, as far as it is taken."""
        return self._db.execute(statement, values)

    def change(self, statement: str, *values: Any) -> int:
        """Change rows; how many. To be called within a `transaction`."""
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")
        return self._db.execute(statement, values).rowcount

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes of the block or none of them.

        Raises:
            sqlite3.Error: none of them.
        """
        try:
            if self._stale:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self._load()
            yield
            if self._db.in_transaction:
                self._db.execute("COMMIT")
        except BaseException:
            self._stale = True
            with suppress(sqlite3.Error):
                if self._db.in_transaction:  # SQLite has ended some by itself
                    self._db.execute("ROLLBACK")
                self._load()
            raise

    def fact(self, name: str) -> Any:
        """A single value; None if there is none."""
        found = self.rows("SELECT value FROM fact WHERE name = ?", name)
        return found[0][0] if found else None

    def set_fact(self, name: str, value: Any) -> None:
        """Set a single value."""
        self.change("REPLACE INTO fact VALUES (?, ?)", name, value)

    def append(self, payloads: Sequence[bytes], token: bytes | None) -> int:
        """Write entries; the position of the first."""
        first = self.next
        for number, data in enumerate(payloads, first):
            self.change("INSERT INTO entry VALUES (?, ?, ?)", number, data, token)
        self.next += len(payloads)
        return first

    def collect(self, position: int, replica: bytes) -> bool:
        """Move the origin forward and delete the entries that it contains; False when there is a
        later one, or another one at this position."""
        if position > self.origin:
            self.set_fact("origin", position)
            self.set_fact("replica", replica)
            self.origin, self.next = position, max(self.next, position + 1)
        self.change("DELETE FROM entry WHERE position <= ?", self.origin)
        return position == self.origin and self.fact("replica") == replica

    def close(self) -> None:
        """Close the file."""
        for pulse in self.pulses.values():
            pulse.release()
        self._db.close()

    def _is_new(self) -> bool:
        """Whether nothing is in it yet. Nothing is written before it is known to be ours."""
        found = self.rows("PRAGMA user_version")[0][0]
        if found == 0 and not self.rows("SELECT 1 FROM sqlite_master"):
            return True
        if found != FORMAT:
            raise self._unreadable(f"it has format {found}, and this version reads {FORMAT}")
        wrong = self.rows("PRAGMA quick_check(1)")[0][0]
        if wrong != "ok":
            raise self._unreadable(f"it is damaged ({' '.join(wrong.split())})")
        return False

    def _make(self) -> None:
        with self.transaction():
            self._db.execute("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";"):
                self._db.execute(statement)
            self.set_fact("identity", secrets.randbits(62))
            self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def _load(self) -> None:
        origin = self.fact("origin")
        self.origin = NO_POSITION if origin is None else origin
        last = self.rows("SELECT MAX(position) FROM entry")[0][0]
        self.next = max(self.origin, NO_POSITION if last is None else last) + 1
        stored = {
            GroupId(owner): (session, timeout_s)
            for owner, session, timeout_s in self.rows("SELECT * FROM pulse")
        }
        for owner in [each for each in self.pulses if each not in stored]:
            self.pulses.pop(owner).release()
        for owner, (session, timeout_s) in stored.items():
            if owner not in self.pulses:
                self.pulses[owner] = Pulse(session, timeout_s)
        self._stale = False

    def _unreadable(self, why: str) -> StateError:
        return StateError(
            f"the log in {self.file} cannot be read: {why}. Restore it from a copy, or choose "
            "another folder"
        )
