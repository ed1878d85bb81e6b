"""A windowed job whose every window is known in advance: sums of squares of consecutive numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.e2e.kube import until
from tests.e2e.release import PARTITIONS, Release

GROUPS = 8
"""As many as `squares.py` makes."""
WIDTH = 100
"""Of a window, in numbers."""


class Windowed:
    """The job, on a release.

    Args:
        segments: numbers from 0.
        width: of a window, in numbers.
        engine: what aggregates it.
    """

    def __init__(
        self,
        release: Release,
        name: str,
        segments: int,
        width: int = WIDTH,
        engine: str = "peers",
    ) -> None:
        self.name = name
        self._release = release
        self._segments = segments
        self._width = width
        self._engine = engine

    def manifest(self, per_second: int, **declared: Any) -> dict[str, Any]:
        """The job, and how it is declared to be run."""
        options = {
            "segments": self._segments,
            "ratePerSecond": per_second,
            "partitions": PARTITIONS,
        }
        files = {"path": f"windowed/{self.name}", "format": "jsonl", "rollSeconds": 1}
        sums: dict[str, Any] = {"groupByKey": "group", "fluxPolicy": "continue"}
        if self._engine == "spark":  # each of its peers runs stages of its own
            sums["maxPeers"] = 2
        catalog = [
            {"name": "numbers", "type": "input", "plugin": "generator", "options": options,
             "maxPeers": 2, "watermarkKey": "n"},
            {"name": "square", "type": "function", "fn": "squares:square_of_group", "maxPeers": 2},
            {"name": "sums", "type": "reduce", **sums},
            {"name": "write", "type": "output", "plugin": "files", "options": files, "maxPeers": 2},
        ]  # fmt: skip
        window = {"id": "hundreds", "task": "sums", "type": "fixed", "windowKey": "n",
                  "range": [self._width, "elements"], "aggregation": ["sum", "square"],
                  "engine": self._engine}  # fmt: skip
        trigger = {"windowId": "hundreds", "type": "watermark", "postEvictor": ["all"],
                   "emit": "squares:total"}  # fmt: skip
        return {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": self.name},
            "spec": {
                "guarantee": "exactly-once",
                "workflow": [["numbers", "square"], ["square", "sums"], ["sums", "write"]],
                "catalog": [{**each, "batchSize": 100} for each in catalog],
                "windows": [window],
                "triggers": [trigger],
                **declared,
            },
        }

    def start(self, per_second: int, **declared: Any) -> None:
        """Apply it; another `per_second` makes another version of it."""
        self._release.kube.apply(self.manifest(per_second, **declared))

    def written(self) -> list[tuple[int, int, int]]:
        """Group, lower bound and sum of each window that was written until now, in order."""
        rows = self._release.rows(f"windowed/{self.name}")
        return sorted((row["group"], row["from"], row["total"]) for row in rows)

    def counted(self) -> Counter[tuple[int, int]]:
        """Group and count of each segment that a job `with_counts` has written until now."""
        rows = self._release.rows(f"counts/{self.name}")
        return Counter((row["group"], row["count"]) for row in rows)

    def await_more(self) -> None:
        """Wait until windows are written that were not when this was called."""
        before = len(self.written())
        until(lambda: len(self.written()) > before, f"{self.name} writes more windows")

    def assert_unfinished(self) -> None:
        """The fault that has just been made came before the end."""
        phase = self._release.kube.phase(self.name)
        assert phase not in ("Completed", "Failed"), "the job was too short for this test"

    def assert_exact(self) -> None:
        """The job completes, and each window was written once, with the sum that it must have."""
        self._release.await_completed(self.name)
        assert self.written() == expected(self._segments, self._width)


def expected(segments: int, width: int = WIDTH) -> list[tuple[int, int, int]]:
    """Group, lower bound and sum of each window, in order."""
    sums: dict[tuple[int, int], int] = {}
    for n in range(segments):
        key = n % GROUPS, n - n % width
        sums[key] = sums.get(key, 0) + n**2
    return sorted((group, lower, total) for (group, lower), total in sums.items())


def with_counts(manifest: dict[str, Any]) -> dict[str, Any]:
    """The job, with a function that counts the segments of each group in its state."""
    spec = manifest["spec"]
    spec["workflow"] += [["square", "count"], ["count", "counts"]]
    options = {
        "path": f"counts/{manifest['metadata']['name']}",
        "format": "jsonl",
        "rollSeconds": 1,
    }
    spec["catalog"] += [
        {"name": "count", "type": "function", "fn": "squares:counted", "groupByKey": "group",
         "state": {"count": "value[int]"}, "fluxPolicy": "continue", "maxPeers": 1},
        {"name": "counts", "type": "output", "plugin": "files", "options": options, "maxPeers": 1},
    ]  # fmt: skip
    return manifest


def expected_counts(segments: int) -> Counter[tuple[int, int]]:
    """Group and count of each segment."""
    return Counter((n % GROUPS, n // GROUPS + 1) for n in range(segments))
