"""What is said of segments that did not go on."""

from __future__ import annotations

import pytest

from onyx.model.job import CatalogEntry, Job, LookupJoin
from onyx.reports.outcomes import TaskTotals, all_failed, made_nothing, remarks

JOB = Job(
    "j",
    (("read", "f"), ("f", "out"), ("f", "bad")),
    (CatalogEntry("f", "function", fn="m:f", dead_letter="bad"),),
)


@pytest.mark.parametrize(
    ("totals", "lines"),
    [
        (TaskTotals(1999, 1999), []),
        (
            TaskTotals(1999, 0, dead_letters=1999, first_dead_letter="KeyError: 'id' (shop.py, 3)"),
            ["1,999 of 1,999 segments of f went to bad; first error: KeyError: 'id' (shop.py, 3)"],
        ),
        (
            TaskTotals(10, 10, unmatched=4, first_unmatched="the first has no key 'x'"),
            [
                "4 of 10 segments of f matched no flow condition and went nowhere; "
                "the first has no key 'x'"
            ],
        ),
        (TaskTotals(10, 10, late=1), ["1 segment of f came late and counted in no window"]),
        (TaskTotals(0, 0, dead_letters=3), ["3 of 3 segments of f went to bad"]),
    ],
)
def test_each_way_not_to_go_on_has_a_line(totals: TaskTotals, lines: list[str]) -> None:
    assert remarks(JOB, {"f": totals, "elsewhere": TaskTotals(1, dead_letters=1)}) == lines


def test_letters_that_were_not_written_are_said() -> None:
    (line,) = remarks(JOB, {"f": TaskTotals(9, dead_letters=9)}, unwritten=("bad",))
    assert line == "9 of 9 segments of f went to bad (letters not written: the job ended first)"


@pytest.mark.parametrize(
    ("read", "lost", "about"),
    [
        (TaskTotals(), False, ""),
        (TaskTotals(retried=1), False, "about "),
        (TaskTotals(taken_over=1), False, "about "),
        (TaskTotals(), True, "about "),
    ],
)
def test_a_count_that_may_not_be_exact_says_so(read: TaskTotals, lost: bool, about: str) -> None:
    job = Job(JOB.name, JOB.workflow, (CatalogEntry("read", "input", plugin="p"), *JOB.catalog))
    found = remarks(job, {"f": TaskTotals(5, dead_letters=3), "read": read}, lost)
    assert found == [f"{about}3 of 5 segments of f went to bad"]


QUEUE = CatalogEntry(
    "read", "input", plugin="redis", options={"mode": "native", "onFailure": "source"}
)
REQUESTS = CatalogEntry("take", "input", plugin="requests")


@pytest.mark.parametrize(
    ("inputs", "who"),
    [
        ((REQUESTS,), "as the answers to their requests say"),
        ((QUEUE,), "as their queue has heard"),
        ((QUEUE, REQUESTS), "as their queue has heard, or the answers to their requests say"),
    ],
)
def test_it_is_said_who_has_heard_of_a_failure(inputs: tuple[CatalogEntry, ...], who: str) -> None:
    job = Job("j", JOB.workflow, (*inputs, *JOB.catalog))
    its = TaskTotals(5, 4, answered=1, first_answered="KeyError: 'id'")
    assert remarks(job, {"f": its}) == [
        f"1 of 5 segments of f failed, {who}; first error: KeyError: 'id'"
    ]


def test_totals_add_up_and_keep_what_was_first() -> None:
    one = TaskTotals(5, 4, dead_letters=1, first_dead_letter="a")
    both = one + TaskTotals(2, 2, dead_letters=2, first_dead_letter="b")
    assert (both.segments_in, both.dead_letters, both.first_dead_letter) == (7, 3, "a")
    assert both.since(one).dead_letters == 2


SORTED = Job(
    "j",
    (("read", "f"), ("f", "out"), ("f", "bad")),
    (
        CatalogEntry("read", "input", plugin="p"),
        CatalogEntry("f", "function", fn="m:f", dead_letter="bad", late_to="late"),
        CatalogEntry("out", "output", plugin="p"),
        CatalogEntry("bad", "output", plugin="p"),
        CatalogEntry("late", "output", plugin="p"),
    ),
)


@pytest.mark.parametrize(
    ("read", "f", "out", "failed"),
    [
        (TaskTotals(9), TaskTotals(9, dead_letters=9), TaskTotals(), ["f"]),
        (TaskTotals(9), TaskTotals(9, dead_letters=8), TaskTotals(1), []),
        (TaskTotals(9), TaskTotals(9, dead_letters=8), TaskTotals(), []),
        (TaskTotals(9), TaskTotals(1, dead_letters=1), TaskTotals(8), []),
        (TaskTotals(9), TaskTotals(9), TaskTotals(9, dead_letters=9), ["out"]),
        (TaskTotals(9), TaskTotals(9), TaskTotals(), []),
        (TaskTotals(), TaskTotals(), TaskTotals(), []),
    ],
    ids=["all", "some", "others made nothing", "few beside", "refused", "none", "empty"],
)
def test_a_job_with_all_in_dead_letters_has_no_result(
    read: TaskTotals, f: TaskTotals, out: TaskTotals, failed: list[str]
) -> None:
    bad = TaskTotals(f.dead_letters)
    totals = {"read": read, "f": f, "out": out, "bad": bad, "late": TaskTotals(1)}
    assert all_failed(SORTED, totals) == failed


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (
            TaskTotals(2),
            [
                "f took 2 segments and made none: what m:f returns goes on, and None is nothing; "
                "did f forget its return?"
            ],
        ),
        (TaskTotals(2, 1), []),
        (TaskTotals(2, dead_letters=2), []),
        (TaskTotals(2, unmatched=2), []),
        (TaskTotals(2, errors=1), []),
        (TaskTotals(), []),
    ],
    ids=["nothing", "something", "dead letters", "unmatched", "errors", "no segments"],
)
def test_a_function_that_makes_nothing_of_anything_is_named(f: TaskTotals, said: list[str]) -> None:
    assert made_nothing(SORTED, {"read": TaskTotals(2), "f": f}) == said


JOINS = Job(
    "j",
    (("read", "named"), ("named", "paid"), ("other", "paid"), ("paid", "out")),
    (
        CatalogEntry("named", "function", join=LookupJoin("id", "customers")),
        CatalogEntry("paid", "join"),
    ),
)


@pytest.mark.parametrize(
    ("named", "paid", "said"),
    [
        (
            TaskTotals(2000, 2000, without_row=2000),
            TaskTotals(2000, 1),
            ["2,000 of 2,000 segments of named found no row in customers"],
        ),
        (TaskTotals(2000, 2000, without_row=1999), TaskTotals(2000, 1), []),
        (TaskTotals(2, 2), TaskTotals(100), ["paid joined none of its 100 segments"]),
        (TaskTotals(2, 2), TaskTotals(100, errors=1), []),
        (TaskTotals(), TaskTotals(), []),
    ],
    ids=["no row", "a row", "no pair", "errors", "no segments"],
)
def test_a_join_that_finds_nothing_for_anything_is_named(
    named: TaskTotals, paid: TaskTotals, said: list[str]
) -> None:
    totals = {"named": named, "paid": paid}
    assert remarks(JOINS, totals) + made_nothing(JOINS, totals) == said


def test_only_that_all_are_without_a_row_is_worth_a_report() -> None:
    assert not TaskTotals(9, without_row=8).remarkable
    assert TaskTotals(9, without_row=9).remarkable
