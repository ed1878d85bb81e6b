"""What killed a job is shown with the user's own places, its causes and the segment, and nothing
that the user's objects do when they are looked at does harm."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.jobs.bench import Bench, chain

from onyx.client import failure_text
from onyx.model.locations import without_secrets
from onyx.program import failure
from onyx.program.failure import Failure, report
from onyx.settings import Settings, TaskSettings

SEGMENTS = [{"n": 1}, {"n": 2, "card": "4111-1111"}]


def parse(text):
    return int(text)


def fails(segment):
    if segment["n"] == 2:
        try:
            parse(segment["card"])
        except ValueError as error:
            raise RuntimeError("no number") from error
    return segment


def message(values=True):
    settings = Settings(task=TaskSettings(report_values=values))
    bench = Bench(chain(SEGMENTS, fn="m:fails"), {"m:fails": fails}, settings=settings)
    bench.settle()
    (found,) = bench.exceptions
    return found


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


def reported(error, **more):
    return report("job-1", "work", "peer-1", Failure("apply-fn", error, **more), values=True)


def test_the_users_places_the_causes_and_the_segment_are_shown():
    lines = failure_text.details(message())
    places = [re.sub(r".*/(\w+.py):\d+", r"\1", line) for line in lines if " at " in line]
    assert places == [
        'test_program_exceptions.py in fails: raise RuntimeError("no number") from error',
        'test_program_exceptions.py in fails: parse(segment["card"])',
        "test_program_exceptions.py in parse: return int(text)",
    ]
    assert "caused by ValueError: invalid literal for int() with base 10: '4111-1111'" in lines
    assert lines[-1] == "segment: {'card': '4111-1111', 'n': 2}"
    assert failure_text.sentence(message()).startswith(
        "task work, apply-fn: m:fails raised Runtime"
    )


def decodes():
    return json.loads("{")


@pytest.mark.parametrize(
    ("work", "functions"),
    [(decodes, ["decodes", "loads"]), (partial(json.loads, "{"), [])],
    ids=["called by the user", "called by an executor"],
)
def test_the_standard_library_is_shown_only_below_the_users_code(work, functions):
    with ThreadPoolExecutor(1) as executor:
        error = executor.submit(work).exception()
    assert error is not None
    shown = [each["function"] for each in failure.frames(error)]
    assert shown[: len(functions)] == functions
    assert bool(shown) == bool(functions)


def test_values_can_be_hidden_and_then_appear_nowhere():
    found = message(values=False)
    assert "4111" not in json.dumps(found)
    assert "no number" not in json.dumps(found).replace('raise RuntimeError(\\"no number\\")', "")
    assert failure_text.details(found)[-1] == "segment: {'card': str, 'n': int}"


def test_members_of_groups_and_what_was_being_handled_are_shown():
    def handling():
        try:
            parse("x")
        except ValueError:
            raise KeyError("gone")  # noqa: B904 - what is tested

    errors = []
    try:
        handling()
    except KeyError as error:
        errors.append(error)
    group = raised(ExceptionGroup("both", [*errors, raised(OSError("disk"))]))
    relations = [(each["relation"], each["type"]) for each in failure.chain(group)]
    assert relations == [
        ("", "ExceptionGroup"),
        ("one of several", "KeyError"),
        ("one of several", "OSError"),
        ("while handling", "ValueError"),
    ]


def test_a_chain_that_is_a_circle_ends():
    one, two = raised(ValueError("1")), raised(ValueError("2"))
    one.__cause__, two.__cause__ = two, one
    assert [each["message"] for each in failure.chain(one)] == ["1", "2"]


class Hostile(Exception):
    def __init__(self, does):
        self.does = does

    def __str__(self):
        return self.does()

    __repr__ = __str__


def explodes():
    raise SystemExit(3)


@pytest.mark.parametrize(
    "does",
    [
        explodes,
        lambda: "x" * 10_000_000,
        lambda: "\ud800 half",
        lambda: None,
        lambda: "\x1b[2J\n\r",
    ],
    ids=["raises", "megabytes", "half a character", "no text", "moves the cursor"],
)
def test_whatever_an_exception_or_a_value_does_when_it_is_shown_the_report_is_small(does):
    error = raised(Hostile(does))
    found = reported(error, segment={"value": error, "more": [error] * 1000})
    stored = msgspec.json.encode(found)
    assert len(stored) < 60_000
    text = failure_text.whole(msgspec.json.decode(stored))
    assert all(line.isprintable() for line in text.split("\n"))


@given(
    st.recursive(
        st.none() | st.text() | st.binary() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_every_segment_can_be_shown_and_is_short(segment):
    for values in (True, False):
        text = failure.shown_segment({"key": segment}, values)
        assert 0 < len(text) <= failure.SEGMENT_CHARACTERS_MAX
        msgspec.json.encode(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:pw@db:5432/x failed", "postgresql://***@db:5432/x failed"),
        (
            "see https://h/p?a=1&X-Amz-Signature=abc&b=2",
            "see https://h/p?a=1&X-Amz-Signature=***&b=2",
        ),
        ("jdbc://h/d?user=u;password=p w", "jdbc://h/d?user=u;password=*** w"),
        ("mail me@example.org, a = 1?", "mail me@example.org, a = 1?"),
        ("s3://bucket/key@2", "s3://bucket/key@2"),
    ],
)
def test_secrets_of_urls_are_hidden(text, shown):
    assert without_secrets(text) == shown
    assert failure_text.sentence(reported(raised(OSError(text)))).endswith(shown)
