"""A real Prometheus for a test: started on a configuration, asked, and ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pytest
import yaml
from tests.support.servers.ports import free_port
from tests.support.servers.processes import stop

T = TypeVar("T")

ANSWER_S = 60.0
"""What a query finds is there when all moves; each of a hundred waits for no longer."""
SCRAPE_S = 1
"""Period of scrapes; `$__rate_interval` is then four of them."""


INSTALLED = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="no Prometheus: `make prometheus` installs it",
)


class Prometheus:
    """Use as a context manager.

    Arguments:
        folder: for its data and log.
        targets: address to scrape with the labels that a PodMonitor would put on.
        rules: file of rules.
    """

    def __init__(
        self, folder: Path, targets: Sequence[tuple[str, Mapping[str, str]]], rules: Path
    ) -> None:
        self._folder = folder
        self._port = free_port()
        configuration = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": "onyx",
                    "honor_labels": True,
                    "static_configs": [
                        {"targets": [address], "labels": dict(labels)}
                        for address, labels in targets
                    ],
                }
            ],
        }
        self._configuration = folder / "prometheus.yml"
        self._configuration.write_text(yaml.safe_dump(configuration))

    def __enter__(self) -> Prometheus:
        with open(self._folder / "prometheus.log", "wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._configuration}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                    "--enable-feature=exemplar-storage",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stop(self._process)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now.

        Raises:
            OSError: Prometheus refuses it, or does not run.
        """
        found = self._get("/api/v1/query", query=expression)
        result = found["result"]
        return result if found["resultType"] == "vector" else [{"metric": {}, "value": result}]

    def exemplars(self, series: str) -> list[dict[str, str]]:
        """The labels of all exemplars that some series have had."""
        found = self._get("/api/v1/query_exemplars", query=series)
        return [each["labels"] for its in found for each in its["exemplars"]]

    def rules(self) -> list[dict[str, Any]]:
        """All rules with their health."""
        return [rule for group in self._get("/api/v1/rules")["groups"] for rule in group["rules"]]

    def until(self, ask: Callable[[], T], what: str, wait_s: float = ANSWER_S) -> T:
        """Ask until the answer is a good one."""
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                answer = ask()
            except OSError:
                answer = None  # type: ignore[assignment]
            if answer:
                return answer
            if time.monotonic() > deadline_s:
                log = (self._folder / "prometheus.log").read_text()[-2_000:]
                raise AssertionError(f"after {wait_s:.0f} s still not: {what}\n{log}")
            time.sleep(0.25)

    def _get(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self._port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
