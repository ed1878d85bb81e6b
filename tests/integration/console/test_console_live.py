"""Pages that are followed while real workers die: in a browser, and by fifty viewers at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from tests.support.browser import opened
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster

from onyx.console.serve import ConsoleOptions, serving
from onyx.log.server.process import ZooKeeperServer

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,  # a cluster and a browser; parts that change are tested without either
]
VIEWERS = 50
JOB = {
    "apiVersion": "onyx.dev/v1beta1",
    "kind": "OnyxJob",
    "metadata": {"name": "ticks"},
    "spec": {
        "workflow": [["ticks", "work"], ["work", "out"]],
        "catalog": [
            {"name": "ticks", "type": "input", "plugin": "generator",
             "options": {"ratePerSecond": 50}},
            {"name": "work", "type": "function", "fn": "ticking:same"},
            {"name": "out", "type": "output", "plugin": "blackhole"},
        ],
    },
}  # fmt: skip


class Viewers:
    """Programs that follow a page, each by a connection of its own."""

    def __init__(self, address: str, path: str, count: int) -> None:
        self._port, self._path = urlsplit(address).port, path
        self.seen = ["" for _ in range(count)]

    async def _follow(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        path = f"/live?path={quote(self._path)}&q="
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        try:
            while data := await reader.read(1 << 16):
                self.seen[number] += data.decode(errors="replace")
        finally:
            writer.close()

    async def _all(self, stop: threading.Event) -> None:
        tasks = [asyncio.create_task(self._follow(each)) for each in range(len(self.seen))]
        await asyncio.to_thread(stop.wait)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def following(self) -> Iterator[None]:
        """They look for the time of the block."""
        stop = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._all(stop)))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def await_all(self, text: str) -> None:
        """Wait until each of them was sent a text."""
        until = threading.Event()
        for _ in range(int(WAIT_S / 0.1)):
            if all(text in each for each in self.seen):
                return
            until.wait(0.1)
        missing = sum(text not in each for each in self.seen)
        raise AssertionError(f"{missing} of {len(self.seen)} viewers were not sent {text!r}")


def test_a_browser_and_fifty_viewers_see_workers_die_and_come(
    browser: Any, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    (tmp_path / "ticking.py").write_text("def same(segment):\n    return segment\n")
    with Cluster(zookeeper.address, tmp_path, tmp_path / "ticking.py") as cluster:
        first, second = cluster.start_workers(2, peers=4)
        job = cluster.submit(JOB)
        cluster.await_ready(job)
        with serving(cluster.client, cluster.settings, ConsoleOptions(port=0)) as address:
            viewers = Viewers(address, f"/jobs/{job}", VIEWERS)
            page = opened(browser, address, f"jobs/{job}")
            other = opened(browser, address, "cluster", color_scheme="dark")
            with viewers.following():
                page.wait_for_selector("#live[data-state=live]")
                page.evaluate("window.isTheSame = true")
                _see(other, "2 workers")
                for victim in (first, second):
                    groups = cluster.replica.groups
                    (gone,) = (each for each in groups if cluster.worker_in(each) is victim)
                    victim.kill()
                    _see(page, f"because worker {gone} is gone")
                    _see(other, "1 worker ")
                    viewers.await_all(f"because worker {gone} is gone")
                    cluster.start_workers(1, peers=4)
                    _see(other, "2 workers")
                cluster.await_ready(job)
                _see(page, "\nrunning\n")
            assert page.evaluate("window.isTheSame")  # it was never loaded again
            assert page.errors == other.errors == []


def _see(page: Any, text: str) -> None:
    found = "text => document.querySelector('main').innerText.includes(text)"
    page.wait_for_function(found, arg=text, timeout=WAIT_S * 1_000)
