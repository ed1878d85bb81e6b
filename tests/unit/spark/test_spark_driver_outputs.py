"""What the driver of a job on Spark publishes, in which order, and how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onyx.errors import Fenced, Unavailable
from onyx.ids import GroupId
from onyx.plugins.protocol import Commit
from onyx.spark.driver.outputs import Outputs, SpoolWriter
from onyx.spark.driver.request import OutputResult

LIVE = [GroupId("g1")]


class Slow:
    """An output that is durable some ticks after a flush; it notes what is called."""

    cooperative = True

    def __init__(self, notes: list[str], task: str, writer: str = "", ticks: int = 2) -> None:
        self._note = lambda what: notes.append(f"{task}{f' {writer}' if writer else ''}: {what}")
        self._count = 0
        self._ticks = ticks

    def write(self, segments: Sequence[dict[str, Any]]) -> None:
        self._count += len(segments)
        self._note(f"write {[each['n'] for each in segments]}")

    def durable(self) -> int:
        return self._count if self._ticks <= 0 else 0

    def flush(self) -> None:
        self._note("flush")

    def tick(self) -> None:
        self._ticks -= 1

    def fence(self, live: Sequence[GroupId]) -> None:
        self._note(f"fence {list(live)}")

    def seal(self) -> None:
        self._note("seal")

    def close(self) -> None: ...


class Staging(Slow):
    """One that stages."""

    def begin(self, commit: Commit) -> None: ...

    def stage(self, keep: Commit) -> None: ...

    def finish(self, token: Any) -> None:
        self._note(f"finish {token['n']}")

    def sweep(self) -> None:
        self._note("sweep")


def outputs(notes: list[str], wanted: Callable[[], bool] = lambda: True) -> Outputs:
    make = {"a": partial(Staging, notes, "a"), "b": partial(Staging, notes, "b")}
    shown = {"shown": partial(Slow, notes, "shown")}
    return Outputs({**make, **shown}, wanted, pause=lambda _: None)


def spool(folder: Path, *batches: Sequence[int]) -> str:
    writer = SpoolWriter(folder / "spool")
    for batch in batches:
        writer.write([{"n": n} for n in batch])
    writer.close()
    return str(writer.path)


def test_all_is_published_before_any_output_is_sealed() -> None:
    notes: list[str] = []
    tokens = ({"n": 1}, {"n": 2})
    outputs(notes).publish("x", {"a": OutputResult(tokens), "b": OutputResult()})
    assert notes == [
        "a x-: finish 1",
        "a x-: finish 2",
        "a x-: seal",
        "a x-: sweep",
        "b x-: seal",
        "b x-: sweep",
    ]


def test_what_cannot_be_staged_is_written_once_and_waited_for(tmp_path: Path) -> None:
    notes: list[str] = []
    results = {"shown": OutputResult(spools=(spool(tmp_path, [1, 2], [3]),))}
    found = outputs(notes)
    found.write_spools(results)
    found.write_spools(results)
    found.publish("x", results)
    assert notes == ["shown: write [1, 2]", "shown: write [3]", "shown: flush", "shown: seal"]


def test_nothing_is_written_any_more_for_a_driver_that_is_to_stop(tmp_path: Path) -> None:
    notes: list[str] = []
    results = {"shown": OutputResult(spools=(spool(tmp_path, [1]),))}
    with pytest.raises(Fenced):
        outputs(notes, wanted=lambda: False).write_spools(results)
    assert notes == []


def test_only_what_can_be_staged_is_swept_and_all_is_fenced() -> None:
    notes: list[str] = []
    found = outputs(notes)
    found.sweep("x")
    found.fence(LIVE)
    assert notes == [
        "a x-: sweep",
        "b x-: sweep",
        "a: fence ['g1']",
        "b: fence ['g1']",
        "shown: fence ['g1']",
    ]


def test_a_spool_that_could_not_be_written_is_tried_again(tmp_path: Path) -> None:
    notes: list[str] = []

    class Away(Slow):
        def write(self, segments: Sequence[dict[str, Any]]) -> None:
            raise Unavailable("nobody there")

    makers = [Away, Slow]
    found = Outputs(
        {"shown": lambda writer: makers.pop(0)(notes, "shown", writer)},
        lambda: True,
        pause=lambda _: None,
    )
    results = {"shown": OutputResult(spools=(spool(tmp_path, [1]),))}
    with pytest.raises(Unavailable):
        found.write_spools(results)
    found.write_spools(results)
    assert notes == ["shown: write [1]", "shown: flush", "shown: seal"]
