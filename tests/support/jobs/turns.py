"""Actors that share a store and take turns: one call of the store a turn, in an order that the test
chooses, with calls that fail in doubt and actors that die in the middle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from onyx.errors import Unavailable
from onyx.storage.interface import BlobStore, ListedFile, MemoryBlobStore


class Killed(BaseException):
    """The actor is dead; it does nothing any more."""


class Actor:
    """Runs on a thread of its own, but only while it has its turn."""

    def __init__(self, work: Callable[[Actor], None]) -> None:
        self.done = False
        self.error: BaseException | None = None
        self._work = work
        self._go = threading.Semaphore(0)
        self._waits = threading.Semaphore(0)
        self._killed = False
        self.fault = ""
        """Of the next call: `before` or `after` it is carried out the connection breaks."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._waits.acquire()

    def turn(self) -> None:
        """Go on until the next call of the store, or the end."""
        assert not self.done
        self._go.release()
        self._waits.acquire()

    def kill(self) -> None:
        if not self.done:
            self._killed = True
            self.turn()
        self._thread.join()

    def pause(self) -> None:
        """Called by the actor: wait for a turn."""
        self._waits.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def _run(self) -> None:
        try:
            self.pause()
            self._work(self)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self._waits.release()


class TurnStore:
    """The store as one actor sees it."""

    def __init__(self, actor: Actor, store: BlobStore) -> None:
        self._actor = actor
        self._store = store

    def create(self, name: str, data: bytes) -> bool:
        return self._call(lambda: self._store.create(name, data))

    def note(self, name: str, data: bytes) -> None:
        self._call(lambda: self._store.note(name, data))

    def read(self, name: str) -> bytes | None:
        return self._call(lambda: self._store.read(name))

    def list(self, prefix: str) -> Sequence[ListedFile]:
        return self._call(lambda: self._store.list(prefix))

    def delete(self, name: str) -> None:
        return self._call(lambda: self._store.delete(name))

    def delete_all(self, names: Iterable[str]) -> None:
        for each in names:
            self.delete(each)

    def _call(self, work: Callable[[], Any]) -> Any:
        self._actor.pause()
        fault, self._actor.fault = self._actor.fault, ""
        if fault == "before":
            raise Unavailable("nothing was done")
        result = work()
        if fault == "after":
            raise Unavailable("the answer is lost")
        return result


def copy_of(store: MemoryBlobStore) -> MemoryBlobStore:
    """The store as it is now."""
    copied = MemoryBlobStore()
    for each in store.list(""):
        data = store.read(each.name)
        assert data is not None
        copied.create(each.name, data)
    return copied


class InlineThreads:
    """Stands for a pool of threads where turns are taken: everything happens at once."""

    def __init__(self, *arguments: object) -> None:
        pass

    def __enter__(self) -> InlineThreads:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: object) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, work: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        return iter([work(*each) for each in zip(*items, strict=True)])
