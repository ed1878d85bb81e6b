"""Chunks that are put, named, given up and collected at once, over a small model of ZooKeeper and
over the file of a log of one machine.

Turn by turn, in any order, and any of them may die between two requests. Whenever an entry names a
chunk, the chunk is there, with all its pieces.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
)
from tests.support.jobs.turns import Actor
from tests.support.log.submissions import submit_job

from onyx.codec.entries import decode_entry
from onyx.codec.packed import unpack
from onyx.ids import NO_POSITION, Position
from onyx.log.interface import ChunkGone
from onyx.log.local.log import LocalClientLog
from onyx.log.local.requests import LogRequest
from onyx.log.local.store import TenancyFile
from onyx.log.paths import Paths
from onyx.log.zookeeper.chunks import Chunks
from onyx.settings import LogSettings

PATHS = Paths("t")
PIECE_BYTES = 96
DOCUMENTS = (b"small", random.Random(0).randbytes(270))
"""The second one is kept in several pieces: nothing makes it smaller."""
"""The second one has three pieces."""
TURNS, SEEDS, LIVE = 500, 40, 6


class Stat(NamedTuple):
    version: int
    mtime: int = 0


class Answer:
    """What a started request answers."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    def get(self, timeout: float = 0.0) -> Any:
        return self._work()


@dataclass
class Tree:
    """The nodes, and kazoo's requests to them; a request takes effect when it is got."""

    nodes: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def below(self, path: str) -> list[str]:
        return [each for each in self.nodes if each.rpartition("/")[0] == path]

    def create(self, path: str, data: bytes) -> str:
        if path in self.nodes:
            raise NodeExistsError
        if path.rpartition("/")[0] not in self.nodes:
            raise NoNodeError
        self.nodes[path] = data, 0
        return path

    def found(self, path: str, version: int = -1) -> tuple[bytes, int]:
        if path not in self.nodes:
            raise NoNodeError
        if version not in (-1, self.nodes[path][1]):
            raise BadVersionError
        return self.nodes[path]

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self.nodes[path] = data, self.found(path, version)[1] + 1

    def delete(self, path: str, version: int = -1) -> None:
        self.found(path, version)
        if self.below(path):
            raise NotEmptyError
        del self.nodes[path]

    def create_async(self, path: str, data: bytes) -> Answer:
        return Answer(lambda: self.create(path, data))

    def get_async(self, path: str) -> Answer:
        return Answer(lambda: (self.found(path)[0], Stat(self.found(path)[1])))

    def exists_async(self, path: str) -> Answer:
        return Answer(lambda: Stat(self.nodes[path][1]) if path in self.nodes else None)

    def get_children_async(self, path: str) -> Answer:
        return Answer(
            lambda: (self.found(path), [each.rpartition("/")[2] for each in self.below(path)])[1]
        )

    def transaction(self) -> Transaction:
        return Transaction(self)


class Transaction:
    """All or nothing, with kazoo's results."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._steps: list[Callable[[], Any]] = []

    def check(self, path: str, version: int) -> None:
        self._steps.append(lambda: self._tree.found(path, version))

    def create(self, path: str, data: bytes) -> None:
        self._steps.append(lambda: self._tree.create(path, data))

    def set_data(self, path: str, data: bytes) -> None:
        self._steps.append(lambda: self._tree.set_data(path, data))

    def delete(self, path: str) -> None:
        self._steps.append(lambda: self._tree.delete(path))

    def commit_async(self) -> Answer:
        return Answer(self._commit)

    def _commit(self) -> list[Any]:
        before = dict(self._tree.nodes)
        results: list[Any] = []
        for step in self._steps:
            try:
                results.append(step())
            except (NodeExistsError, NoNodeError, BadVersionError, NotEmptyError) as error:
                self._tree.nodes = before
                return [*(RolledBackError() for _ in results), error]
        return results


class TurnSession:
    """A session whose every request is a turn of its actor."""

    def __init__(self, actor: Actor, tree: Tree) -> None:
        self._actor = actor
        self._tree = tree

    def perform(self, start: Callable[[Any], Any]) -> Any:
        self._actor.pause()
        return start(self._tree).get(0.0)


class World:
    def __init__(self) -> None:
        self.tree = Tree({"": (b"", 0)})
        for path in ("/onyx", PATHS.root, PATHS.chunks, PATHS.log):
            self.tree.create(path, b"")
        self.entries = 0

    def session(self, actor: Actor) -> tuple[Any, Chunks]:
        session: Any = TurnSession(actor, self.tree)
        return session, Chunks(session, PATHS, PIECE_BYTES)

    def submit(self, data: bytes) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            session, chunks = self.session(actor)
            while True:
                digest = chunks.put(data)
                self.entries += 1
                path = f"{PATHS.log}/{self.entries}"

                def append(client: Any, digest: str = digest, path: str = path) -> Any:
                    transaction = client.transaction()
                    chunks.touch(transaction, [digest])
                    transaction.create(path, digest.encode())
                    return transaction.commit_async()

                if not any(isinstance(each, Exception) for each in session.perform(append)):
                    return

        return work

    def collect(self, actor: Actor) -> None:
        session, chunks = self.session(actor)

        def named() -> set[str]:
            session.perform(lambda client: client.get_children_async(PATHS.log))
            return {self.tree.nodes[each][0].decode() for each in self.tree.below(PATHS.log)}

        chunks.sweep(named, before_ms=1)

    def forget(self, number: int) -> None:
        """A job is collected, and its chunk named by one entry less."""
        entries = self.tree.below(PATHS.log)
        if entries:
            self.tree.delete(entries[number % len(entries)])

    def forget_all(self) -> None:
        for path in self.tree.below(PATHS.log):
            self.tree.delete(path)

    def left(self) -> list[str]:
        return self.tree.below(PATHS.chunks)

    def check(self) -> None:
        for entry in self.tree.below(PATHS.log):
            digest = self.tree.nodes[entry][0].decode()
            whole = self.tree.nodes[f"{PATHS.chunk(digest)}/whole"][0]
            data = whole[1:]
            if whole[:1] == b"\x01":
                names = [whole[start : start + 32].hex() for start in range(1, len(whole), 32)]
                data = b"".join(self.tree.nodes[f"{PATHS.chunk(digest)}/{n}"][0] for n in names)
            assert hashlib.sha256(unpack(data)).hexdigest() == digest


class TurnConnection:
    """A connection to the log of a folder whose every request is a turn of its actor."""

    def __init__(self, actor: Actor, store: TenancyFile) -> None:
        self._actor = actor
        self._store = store

    def perform(self, request: LogRequest) -> Any:
        self._actor.pause()
        with self._store.transaction():
            return request.apply(self._store, 1, False)


class FolderWorld:
    def __init__(self, folder: Path) -> None:
        self._store = TenancyFile(folder / "t.sqlite", kept=False)

    def log(self, actor: Actor) -> LocalClientLog:
        log = LocalClientLog.__new__(LocalClientLog)
        log._settings = LogSettings()
        log._connection = TurnConnection(actor, self._store)  # type: ignore[assignment]
        return log

    def submit(self, data: bytes) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            log = self.log(actor)
            while True:
                try:
                    log.append(submit_job("j", "in", digest=log.put_chunk(data)))
                    return
                except ChunkGone:
                    continue

        return work

    def collect(self, actor: Actor) -> None:
        log = self.log(actor)

        def named() -> set[str]:
            entries = log.read(NO_POSITION)
            return {digest for entry in entries for digest in entry.command.chunks}

        log.sweep_chunks(named, age_s=-60)

    def _entries(self) -> list[tuple[int, bytes]]:
        return self._store.rows("SELECT position, data FROM entry ORDER BY 1")

    def forget(self, number: int) -> None:
        if entries := self._entries():
            self._delete(entries[number % len(entries)][0])

    def forget_all(self) -> None:
        for position, _ in self._entries():
            self._delete(position)

    def _delete(self, position: int) -> None:
        with self._store.transaction():
            self._store.change("DELETE FROM entry WHERE position = ?", position)

    def left(self) -> list[Any]:
        return self._store.rows("SELECT digest FROM chunk")

    def check(self) -> None:
        stored = dict(self._store.rows("SELECT digest, data FROM chunk"))
        for position, data in self._entries():
            for digest in decode_entry(Position(position), data).command.chunks:
                assert hashlib.sha256(unpack(stored[digest])).hexdigest() == digest


@pytest.mark.short(12)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_an_entry_names_is_there_whatever_is_collected_meanwhile(seed: int) -> None:
    everything_at_once(World(), seed)


@pytest.mark.short(3)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_an_entry_names_is_there_in_the_log_of_a_folder_too(seed: int, tmp_path: Path) -> None:
    everything_at_once(FolderWorld(tmp_path), seed)


def everything_at_once(world: World | FolderWorld, seed: int) -> None:
    """A list that hypothesis makes is too short for what takes a dozen turns in one order."""
    chance = random.Random(seed)
    actors: list[Actor] = []
    try:
        for _ in range(TURNS):
            live = [each for each in actors if not each.done]
            kind = chance.random()
            if len(live) < LIVE and kind < 0.5:
                submits = chance.random() < 0.6
                work = world.submit(chance.choice(DOCUMENTS)) if submits else world.collect
                actors.append(Actor(work))
            elif kind < 0.15:
                world.forget(chance.randrange(1_000))
            elif kind < 0.17 and live:
                chance.choice(live).kill()
            elif live:
                chance.choice(live).turn()
            world.check()
        assert [each.error for each in actors if each.error is not None] == []
    finally:
        for actor in actors:
            actor.kill()
    world.forget_all()
    last = Actor(world.collect)
    while not last.done:
        last.turn()
    assert world.left() == [], "nothing is named, so nothing stays"
