"""Input, manifest and outputs of the job under chaos, and the comparison of outputs with input."""

from __future__ import annotations

import collections
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.patience import WAIT_S

from onyx.ids import GroupId

Key = tuple[str, int]
"""File and number of a record in it."""
OUTPUTS = ("even", "odd", "round", "bad")
_POLL_S = 0.05


class ChaosFiles:
    """One job's folder: `in/*.txt`, the gate, and one directory an output below `out`."""

    def __init__(self, folder: Path, files: int, records: int) -> None:
        """Make the input: `files` files of `records` lines, some of them no JSON."""
        self._folder = folder
        self._gate = folder / "gate"
        self._gate.write_text("0")
        self._records = records
        self._files = [folder / "in" / f"{number}.txt" for number in range(files)]
        self._parts: dict[Path, bytes] = {}
        self._written: dict[str, collections.Counter[tuple[Key, Any]]] = {
            name: collections.Counter() for name in OUTPUTS
        }
        self.expected: dict[str, dict[Key, Any]] = {name: {} for name in OUTPUTS}
        (folder / "in").mkdir()
        for index, path in enumerate(self._files):
            path.write_text("".join(self._line(path, index, number) for number in range(records)))
        self._missing = {name: set(self.expected[name]) for name in OUTPUTS}

    def _line(self, path: Path, index: int, number: int) -> str:
        key = (str(path), number)
        if number % 1009 == 5:
            line = f"no record {index} {number}"
            self.expected["bad"][key] = line
            return line + "\n"
        value = number * 7 + index
        self.expected["odd" if value % 2 else "even"][key] = value
        if value % 10 == 0:
            self.expected["round"][key] = value
        return json.dumps({"value": value}) + "\n"

    def manifest(
        self,
        guarantee: str = "at-least-once",
        gated: bool = True,
        pause_s: float = 0.004,
        roll_s: float = 0.5,
    ) -> dict[str, Any]:
        """Files to files over a parsing function, routed by flow conditions.

        Args:
            guarantee: of the job.
            gated: whether `open_gate` decides how much may be read.
            pause_s: what parsing a hundred records takes at least.
            roll_s: age at which the outputs publish a part.
        """
        read = {"path": str(self._folder / "in" / "*.txt"), "format": "text"}
        read |= {"recordNumber": "number", "fileName": "file"}
        if gated:
            read["gate"] = str(self._gate)
        plugin = "chaos_job:gated_files" if gated else "files"
        tasks = [
            {"name": "read", "type": "input", "plugin": plugin, "maxPeers": 2, "options": read},
            {
                "name": "parse",
                "type": "function",
                "fn": "chaos_job:parse",
                "params": ["pause"],
                "options": {"pause": pause_s},
            },
            *(self._output(name, roll_s) for name in OUTPUTS),
        ]
        return {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "chaos"},
            "spec": {
                "guarantee": guarantee,
                "workflow": [["read", "parse"], *(["parse", name] for name in OUTPUTS)],
                "catalog": [{**task, "batchSize": 200} for task in tasks],
                "flowConditions": CONDITIONS,
            },
        }

    def _output(self, name: str, roll_s: float) -> dict[str, Any]:
        options = {"path": str(self.directory(name)), "rollSeconds": roll_s, "rollSegments": 3000}
        return {
            "name": name,
            "type": "output",
            "plugin": "files",
            "maxPeers": 1 if name in ("round", "bad") else 2,
            "options": options,
        }

    def directory(self, output: str) -> Path:
        return self._folder / "out" / output

    def open_gate(self, records: int | None = None) -> None:
        """Let the job read so many records of each file; all of them without an argument."""
        following = self._gate.with_suffix(".next")
        following.write_text(str(self._records + 1 if records is None else records))
        following.rename(self._gate)

    # --- outputs -------------------------------------------------------------------------------

    def visible(self) -> dict[Path, bytes]:
        """Every visible part with its content. What was seen once never changes or goes away."""
        self._look()
        for path, content in self._parts.items():
            assert path.read_bytes() == content, f"{path} has changed since it became visible"
        return dict(self._parts)

    def _look(self) -> None:
        """Read the parts that are new; each must be whole at once."""
        paths = {
            path: name
            for name in OUTPUTS
            for path in self.directory(name).glob("*")
            if path.is_file()
        }
        assert self._parts.keys() <= paths.keys(), "a visible part has gone away"
        for path in sorted(paths.keys() - self._parts.keys()):
            content = self._parts[path] = path.read_bytes()
            assert content.endswith(b"\n"), f"{path} ends within a record"
            for line in content.splitlines():
                record = json.loads(line)
                key = (record["file"], record["number"])
                self._written[paths[path]][key, record["value"]] += 1
                self._missing[paths[path]].discard(key)

    def parts_by(self, group: GroupId) -> dict[Path, bytes]:
        """Visible parts that one incarnation wrote: their names carry its digest."""
        digest = hashlib.sha256(group.encode()).hexdigest()[:12]
        return {path: data for path, data in self.visible().items() if digest in path.name}

    def unfinished_parts_of(self, group: GroupId, output: str) -> list[Path]:
        """What an incarnation has written to an output and not made visible."""
        return sorted(self.directory(output).glob(f".staging/*/{group}.*/*.staged"))

    def written(self, output: str) -> collections.Counter[tuple[Key, Any]]:
        """Every record of an output with how often it is there."""
        self._look()
        return self._written[output]

    def await_some(self) -> None:
        """Wait until more has become visible than was at the last look."""
        before = len(self._parts)

        def more() -> bool:
            self._look()
            return len(self._parts) > before

        wait_until(more, "another part becomes visible")

    def await_reflected(self, records: int) -> None:
        """Wait until the first so many records of each file are in the outputs."""

        def missing() -> dict[str, list[Key]]:
            self._look()
            lost = {
                name: sorted(key for key in self._missing[name] if key[1] < records)
                for name in OUTPUTS
            }
            return {name: keys for name, keys in lost.items() if keys}

        wait_until(
            lambda: not missing(),
            "all records are reflected",
            lambda: {name: (len(keys), keys[:3], keys[-3:]) for name, keys in missing().items()},
        )

    def check_complete(self) -> None:
        """Every record is in the outputs it belongs to, as it must be, and nowhere else."""
        self.visible()
        for name in OUTPUTS:
            assert dict(self._written[name].keys()) == self.expected[name], name

    def repeats(self) -> int:
        """Records that were written more than once."""
        return sum(count - 1 for name in OUTPUTS for count in self.written(name).values())


CONDITIONS = [
    {
        "from": "parse",
        "to": ["bad"],
        "predicate": "chaos_job:is_bad",
        "thrownException": True,
        "shortCircuit": True,
        "postTransform": "chaos_job:as_bad",
    },
    {"from": "parse", "to": ["even"], "predicate": "chaos_job:is_even"},
    {"from": "parse", "to": ["odd"], "predicate": ["not", "chaos_job:is_even"]},
    {"from": "parse", "to": ["round"], "predicate": "chaos_job:is_round"},
]


def wait_until(
    condition: Callable[[], bool], what: str, details: Callable[[], object] = lambda: ""
) -> None:
    """Look at files again and again until something holds of them."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"after {WAIT_S:.0f} s not: {what}; {details()}"
        time.sleep(_POLL_S)
