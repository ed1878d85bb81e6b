"""Which input leads to the task of a dead letter, and where its letters are."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from tests.support.clocks import ManualClock
from tests.support.jobs.plugin_context import plugin_context
from tests.support.jobs.redrive_cluster import letter
from tests.support.jobs.yaml_jobs import manifest

from onyx.client.redrive import elsewhere
from onyx.client.redrive.ways import place_of_letters, way_in
from onyx.errors import Unavailable, UserError
from onyx.flow.segment import Segment
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.plugins.protocol import Cursor


def job(edges: str, *entries: str, more: str = "") -> Job:
    catalog = "\n".join(f"          - {{{each}}}" for each in (*ENTRIES, *entries))
    return parse_mapping(
        manifest(
            f"""
        workflow: [[in, work], [work, out], {edges}]
        {more}
        catalog:
{catalog}
    """
        )
    )


ENTRIES = (
    "name: in, type: input, plugin: files, options: {path: in}, deadLetter: bad",
    "name: work, type: function, fn: 'm:f', deadLetter: bad",
    "name: out, type: output, plugin: files, options: {path: out}",
    "name: bad, type: output, plugin: files, options: {path: bad}",
)
AGAIN = "name: again, type: input, plugin: requests"
BOTH = "name: both, type: input, plugin: http"

WAYS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "an input that leads there": (("[again, work]", AGAIN), "work", "again"),
    "an input that takes requests itself": (("[again, work]", AGAIN), "again", "again"),
    "beside one that leads elsewhere too": (
        ("[again, work], [both, work], [both, out]", AGAIN, BOTH), "work", "again",
    ),
    "an output": (("[again, out]", AGAIN), "out", "again"),
    "an input, by one to the same tasks": (("[again, work]", AGAIN), "in", "again"),
    "with dead letters of its own": (
        ("[again, work]", AGAIN + ", deadLetter: bad"), "work", "again",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_a_way_in_is_found(name: str) -> None:
    (edges, *entries), task, expected = WAYS[name]
    assert way_in(job(edges, *entries), task).name == expected


NO_WAYS: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "no input takes requests": (
        ("[in, out]",), "work", "",
        r"no way in .* `\{name: again, type: input, plugin: requests\}` .*`\[again, work\]`",
    ),
    "the only one leads elsewhere too": (
        ("[both, work], [both, out]", BOTH), "work", "", "no way in",
    ),
    "one with a function": (
        ("[again, work]", AGAIN + ", fn: 'm:g'"), "work", "", "no way in",
    ),
    "two": (("[again, work], [both, work]", AGAIN, BOTH), "work", "", "again, both; --into"),
    "a task that is not there": (("[again, work]", AGAIN), "wrk", "", "did you mean work"),
    "an input that is none": (("[again, work]", AGAIN), "work", "in", "in is no input.*again"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_WAYS)
def test_what_to_add_is_said_where_there_is_no_way(name: str) -> None:
    (edges, *entries), task, into, message = NO_WAYS[name]
    with pytest.raises(UserError, match=message):
        way_in(job(edges, *entries), task, into)


def test_an_input_that_is_named_need_not_lead_there_alone() -> None:
    found = job("[both, work], [both, out]", BOTH)
    assert way_in(found, "work", "both").name == "both"


def test_a_job_on_spark_takes_no_requests() -> None:
    with pytest.raises(UserError, match="engine: spark"):
        way_in(job("[in, out]", more="engine: spark"), "work")


def test_letters_are_where_the_output_writes_them() -> None:
    assert place_of_letters(job("[in, out]"), "work") == "bad"
    send = "name: send, type: output, plugin: http, options: {url: 'http://h', deadLetterPath: l}"
    assert place_of_letters(job("[work, send]", send), "send") == "l"


def test_it_is_said_where_letters_cannot_be_read_one_by_one() -> None:
    lost = "name: lost, type: output, plugin: blackhole"
    more = "name: more, type: function, fn: 'm:f', deadLetter: lost"
    with pytest.raises(UserError, match=r"no deadLetter.*--from"):
        place_of_letters(job("[in, out]"), "out")
    with pytest.raises(UserError, match=r"go to lost \(blackhole\).*--from"):
        place_of_letters(job("[work, more], [more, out]", lost, more), "more")


class SlowTopic:
    """An input with one partition: what it gives is a list of answers."""

    def __init__(self, clock: ManualClock, *answers: list[Segment]) -> None:
        self._clock = clock
        self._answers = list(answers)

    def open(self, partition: str, cursor: Cursor) -> SlowTopic:
        return self

    def exhausted(self) -> bool:
        return not self._answers

    def read(self, segments_max: int) -> list[Segment]:
        self._clock.advance(1.0)
        return self._answers.pop(0)

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(("silent", "comes"), [(20, True), (40, False)])
def test_a_topic_that_gives_nothing_is_given_up_whatever_time_its_letters_take(
    monkeypatch: pytest.MonkeyPatch, silent: int, comes: bool
) -> None:
    clock = ManualClock()
    answers = [[letter(1)], *[[] for _ in range(silent)], [letter(2)]]
    monkeypatch.setattr(elsewhere, "build_input", lambda *_: SlowTopic(clock, *answers))
    topic = elsewhere.TopicLetters(plugin_context({"topic": "t"}, clock=clock))
    letters = topic.letters("t/0")
    assert next(letters) is not None
    clock.advance(600.0)
    with nullcontext() if comes else pytest.raises(Unavailable, match="nothing for 30 s"):
        assert [each is not None for each in letters] == [True]
