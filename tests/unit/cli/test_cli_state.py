"""`onyx state`: how a key is read from the command line, and how extents are shown."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from onyx.cli.commands.state import state
from onyx.client.window_view import WindowView
from onyx.codec.questions import encode_place, parse_bound, parse_key
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.keystate.extents import Extent
from onyx.keystate.selection import EVERYTHING, Place, Selection

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
        self.by_session_key = False
        self.select = EVERYTHING
        self.asked: tuple[int, bool] = (0, False)
        monkeypatch.setattr("onyx.cli.commands.state.window_pages", self.window_pages)
        monkeypatch.setenv("COLUMNS", "200")

    def window_pages(
        self, settings: object, job: JobId, window: str, select: Selection, *asked: Any
    ) -> Iterator[WindowView]:
        self.select, self.asked = select, asked
        size = asked[0]
        for first in range(0, max(1, len(self.extents)), size):
            page = self.extents[first : first + size]
            more = self.more or first + size < len(self.extents)
            yield WindowView(job, "task", window, page, more, self.in_time, self.by_session_key)


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
    assert cluster.select == EVERYTHING
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


def test_a_table_has_nothing_that_a_terminal_would_obey(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.extents = (Extent("\x1b]0;a\x07b\u202ec", 0, 9, "\x1b[2Jd"),)
    state("job", "w")
    assert rows(capsys.readouterr().out) == [["?]0;a?b?c", "0", "9", "?[2Jd"]]


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
    place = encode_place(Place("b", 0, HOUR_MS))
    assert reported.err == (
        f"these are 2 extents, and there are more: give --all, or --after {place}, or a larger "
        "--limit\n"
    )


@pytest.mark.parametrize(
    ("key", "reported"),
    [
        (None, "state w has no extents\n"),
        ("Praha", 'state w has no extents of the text "Praha"\n'),
        ("5", "state w has no extents of the number 5; the text is --key '\"5\"'\n"),
        ("null", "state w has no extents of the value null; the text is --key '\"null\"'\n"),
    ],
)
def test_nothing_found_says_as_what_the_key_was_taken(
    key: str | None, reported: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    state("job", "w", key)
    assert capsys.readouterr().out == reported


def test_options_say_which_extents_are_meant(cluster: Cluster) -> None:
    state("job", "w", first_key="5", before_key="9", time_from="-3", time_to="2013-01-01T05:00")
    at_five = int(datetime(2013, 1, 1, 5, tzinfo=UTC).timestamp() * 1_000)
    assert cluster.select == Selection(key_from=5, key_to=9, time_from=-3, time_to=at_five)
    state("job", "w", prefix="a", after=encode_place(Place("ab", 10, 19)), limit=7, durable=True)
    assert cluster.select == Selection(prefix="a", after=Place("ab", 10, 19))
    assert cluster.asked == (7, True)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"key": "a", "prefix": "a"}, "ask for one group, or for a beginning, or for a range"),
        ({"first_key": "a", "before_key": "5"}, "begins with a number and ends with a text"),
        ({"first_key": "[1]"}, "whole numbers or texts"),
        ({"prefix": "5"}, "the beginning of a group is a text"),
        ({"time_from": "yesterday"}, "'yesterday' is neither a number nor a moment"),
        ({"after": "b"}, "'b' is not where a page has ended"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    given: dict[str, str], reported: str, cluster: Cluster
) -> None:
    with pytest.raises(UserError, match=reported):
        state("job", "w", **given)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("5", 5), ("-5", -5), ("1.5", 1.5), ("inf", math.inf), ("1970-01-01", 0),
        ("1970-01-01T00:00:01.5Z", 1_500), ("1970-01-01T01:00+01:00", 0),
    ],
)  # fmt: skip
def test_a_bound_is_a_number_or_a_moment(text: str, bound: float) -> None:
    assert parse_bound(text) == bound


def test_all_pages_are_shown_or_the_first_one(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.extents = tuple(Extent(number, 0, 9, 1) for number in range(5))
    state("job", "w", limit=2, as_json=True)
    first = capsys.readouterr()
    assert (len(first.out.splitlines()), "--after" in first.err) == (2, True)
    state("job", "w", limit=2, all_pages=True, as_json=True)
    everything = capsys.readouterr()
    assert (len(everything.out.splitlines()), everything.err) == (5, "")


def test_sessions_show_their_session_keys(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.extents, cluster.by_session_key = (Extent("a", 0, 9, 1, ("s",)),), True
    state("job", "w")
    assert rows(capsys.readouterr().out) == [["a", "0", "9", "s", "1"]]
    state("job", "w", as_json=True)
    assert json.loads(capsys.readouterr().out)["sessionKey"] == "s"


def test_pages_become_one_record_batch_in_a_file(cluster: Cluster, tmp_path: Path) -> None:
    cluster.extents = (Extent("a", 0, 9, 1), Extent("b", 0, 9, 2.5), Extent("c", 10, 19, 3))
    cluster.in_time = True
    state("job", "w", limit=2, all_pages=True, arrow=tmp_path / "state.arrow")
    with pa.ipc.open_stream(str(tmp_path / "state.arrow")) as stream:
        table = stream.read_all()
    assert table.schema.names == ["key", "from", "to", "state"]
    assert table["state"].to_pylist() == [1.0, 2.5, 3.0]
    assert table.schema.field("from").type == pa.timestamp("ms", tz="UTC")


def test_a_reader_that_has_enough_of_a_record_batch_is_no_error_of_its_own(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise BrokenPipeError

    cluster.extents = (Extent("a", 0, 9, 1),)
    monkeypatch.setattr("pyarrow.ipc.new_stream", refuse)
    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=io.BytesIO()))
    with pytest.raises(BrokenPipeError):
        state("job", "w", arrow=Path("-"))
    with pytest.raises(UserError, match="cannot be written"):
        state("job", "w", arrow=Path("/dev/null"))
