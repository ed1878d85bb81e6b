"""`onyx state`: how a key is read from the command line, and how extents are shown."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from onyx.cli.commands.state import parse_key, state
from onyx.client.window_view import WindowView
from onyx.ids import JobId
from onyx.windows.firing import ALL, Extent

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Praha", "Praha"), ("5", 5), ("-5", -5), ('"5"', "5"), ("1.5", "1.5"), ("1e3", "1e3"),
        ("true", True), ("null", None), ("None", "None"), ("NaN", "NaN"), ("", ""), ("007", "007"),
        ('["a", 1]', ["a", 1]), ('{"a": 1}', {"a": 1}), ("[a]", "[a]"), ("a b", "a b"),
    ],
)  # fmt: skip
def test_a_key_is_json_or_else_text(text: str, key: Any) -> None:
    found = parse_key(text)
    assert (found, type(found)) == (key, type(key))


class Cluster:
    """Answers with a view, and remembers how it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.extents: tuple[Extent, ...] = ()
        self.more, self.in_time = False, False
        self.key: Any = None
        monkeypatch.setattr("onyx.cli.commands.state.window_state", self.window_state)
        monkeypatch.setenv("COLUMNS", "200")

    def window_state(
        self, settings: object, job: JobId, window: str, key: Any, extents_max: int
    ) -> WindowView:
        self.key = key
        return WindowView(job, "task", window, self.extents, self.more, self.in_time)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in text.splitlines()
        if line.startswith("│")
    ]


def test_bounds_in_time_are_shown_as_instants_in_utc(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    start = datetime(2013, 1, 1, 5, tzinfo=UTC)
    lower = int(start.timestamp() * 1_000)
    cluster.extents = (
        Extent("JFK", lower, lower + HOUR_MS - 1, 7),
        Extent("[b]", 10**18, -math.inf, ["[c]", "d"]),
    )
    cluster.in_time = True
    state("job", "per-hour")
    assert cluster.key is ALL
    assert rows(capsys.readouterr().out) == [
        ["JFK", "2013-01-01T05:00:00+00:00", "2013-01-01T05:59:59.999+00:00", "7"],
        ["[b]", str(10**18), "", '["[c]","d"]'],
    ]


def test_other_bounds_are_shown_as_they_are(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.extents = (Extent({"a": 1}, 0, 9, None), Extent(5, -math.inf, math.inf, 1.5))
    state("job", "w")
    assert rows(capsys.readouterr().out) == [
        ['{"a":1}', "0", "9", "null"],
        ["5", "", "", "1.5"],
    ]


def test_a_state_that_is_long_is_cut_in_the_table_and_whole_in_json(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.extents = (Extent("a", 0, 9, "x" * 5_000),)
    state("job", "w")
    shown = capsys.readouterr().out
    assert (shown.count("x"), "(5000 characters)" in shown) == (1_000, True)
    state("job", "w", as_json=True)
    assert json.loads(capsys.readouterr().out)["state"] == "x" * 5_000


def test_programs_get_a_line_of_json_for_each_extent(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    cluster.extents = (
        Extent(None, -math.inf, math.inf, {("a", 1): [b"\x00", moment], 2: float("nan")}),
        Extent("b", 0, HOUR_MS, 2),
    )
    cluster.in_time, cluster.more = True, True
    state("job", "w", as_json=True)
    reported = capsys.readouterr()
    assert [json.loads(line) for line in reported.out.splitlines()] == [
        {"key": None, "from": None, "to": None,
         "state": {'["a",1]': ["AA==", "2026-01-02T00:00:00Z"], "2": None}},
        {"key": "b", "from": 0, "to": HOUR_MS, "state": 2},
    ]  # fmt: skip
    assert reported.err == "these are the first 2 extents: give --key, or a larger --limit\n"


@pytest.mark.parametrize(
    ("key", "reported"),
    [
        (None, "window w has no extents\n"),
        ("Praha", 'window w has no extents of the text "Praha"\n'),
        ("5", "window w has no extents of the number 5; the text is --key '\"5\"'\n"),
        ("null", "window w has no extents of the value null; the text is --key '\"null\"'\n"),
    ],
)
def test_nothing_found_says_as_what_the_key_was_taken(
    key: str | None, reported: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    state("job", "w", key)
    assert capsys.readouterr().out == reported
