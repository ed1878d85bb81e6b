"""The collector of journals goes on whatever the log answers, and calls only bugs bugs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import Fenced, OnyxError, Unavailable
from onyx.plugins.journalled import partitions
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.protocol import Behind, Cursor


@pytest.mark.parametrize(("position", "left"), [(1, Behind(2, 335, 0)), (3, Behind(0, 0, 0))])
def test_what_is_processed_and_not_yet_deleted_is_not_behind(position: int, left: Behind) -> None:
    found = JournalledPartitions(plugin_context({}), 1, 1_000, lambda *_: pytest.fail("not opened"))
    journal, feed = SimpleNamespace(size_bytes=335), SimpleNamespace(unread=0)
    found._open["0"] = SimpleNamespace(end=3, journal=journal, feed=feed)
    assert found.behind({"0": Cursor(position)}) == {"0": left}


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (Fenced("the ZooKeeper session has expired"), []),
        (Unavailable("no answer"), ["a journal that is not needed any more stays for now"]),
    ],
)
def test_a_log_that_does_not_say_how_far_all_have_read_is_no_bug(
    error: OnyxError,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = []

    def cursors() -> Sequence[Cursor]:
        asked.append(error)
        if len(asked) == 2:
            found._closing.set()
        raise error

    monkeypatch.setattr(partitions, "COLLECT_INTERVAL_S", 0.0)
    context = replace(plugin_context({}), cursors=cursors)
    found = JournalledPartitions(context, 1, 1_000, lambda name, journal: pytest.fail("not opened"))
    with caplog.at_level(logging.WARNING):
        found._collect()
    assert len(asked) == 2
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == logged * 2
