"""Executors that do their work at once: the order of requests to the store is that of the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from onyx.state import log, recovery


class Inline:
    """As much of a ThreadPoolExecutor as the state logs use."""

    def __init__(self, threads: int, prefix: str = "") -> None: ...

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, work: Callable[..., Any], *each: Iterable[Any]) -> Iterator[Any]:
        return iter([work(*arguments) for arguments in zip(*each, strict=False)])


@contextmanager
def one_thread() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (recovery, log):
            stack.enter_context(mock.patch.object(module, "ThreadPoolExecutor", Inline))
        yield
