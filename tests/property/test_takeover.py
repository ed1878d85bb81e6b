"""Whoever takes over a log finds what was acknowledged, and the writer of before is acknowledged
nothing more: of logs as such, of journals and of state, in a folder and in an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.turns import InlineThreads
from tests.support.takeover.of_journals import JournalsWorld
from tests.support.takeover.of_logs import LogsWorld
from tests.support.takeover.of_states import StatesWorld
from tests.support.takeover.world import CHOICES, Choices, Medium, World, play

from onyx.state import log, reading, recovery
from onyx.storage.fenced_log import LogWriter

OF: dict[str, Callable[..., World]] = {
    "logs": LogsWorld,
    "journals": JournalsWorld,
    "states": lambda medium, *_: StatesWorld(medium),
}


@pytest.fixture(autouse=True, scope="module")
def turn_by_turn() -> Iterator[None]:
    """No threads of their own, small files, and snapshots in many parts."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (recovery, log):
            patch.setattr(module, "ThreadPoolExecutor", InlineThreads)
        patch.setattr(reading, "AHEAD_CHUNKS_MAX", 2)
        patch.setattr(log, "PART_BYTES", 20)
        patch.setattr(log, "_SLICE_VALUES", 9)
        patch.setattr("onyx.journal.journal.COLLECTED_CHUNKS_MIN", 3)
        yield


@pytest.mark.parametrize("medium", Medium, ids=lambda medium: medium.value)
@pytest.mark.parametrize("of", OF)
@given(CHOICES, st.booleans(), st.booleans())
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
def test_what_was_acknowledged_is_what_the_next_owner_finds(
    of: str, medium: Medium, choices: Choices, first: bool, second: bool
) -> None:
    play(OF[of](medium, first, second), choices)


@pytest.mark.parametrize("planted", ["leaves a number out", "notes first"])
def test_a_writer_is_found_out_that(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bugs: a number has no chunk before it, or a note is ahead."""

    def settle(writer: LogWriter[int]) -> None:
        if writer.doubtful is not None:
            if planted == "notes first":
                writer._logs.store.note(writer._note, b"%d" % (writer.last + 1))
            else:
                writer.last += 1
            kept(writer)

    kept = LogWriter.settle
    monkeypatch.setattr(LogWriter, "settle", settle)
    with pytest.raises(AssertionError, match="there"):
        play(LogsWorld(Medium.FOLDER), [("turn", 0, 20)])
