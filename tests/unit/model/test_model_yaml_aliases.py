"""Anchors, aliases and merge keys of YAML mean what they say, and cannot expand for long."""

from __future__ import annotations

from typing import Any

import pytest

from onyx.model.parsing.text import read_text
from onyx.model.report import Report

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def read(text: str) -> tuple[Any, list[str], dict[str, int]]:
    report = Report()
    value, lines = read_text(text, report)
    return value, [str(each) for each in report.problems()], lines


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &x 1\nb: *x", {"a": 1, "b": 1}),
        ("a: &x [1, {c: 2}]\nb: *x", {"a": [1, {"c": 2}], "b": [1, {"c": 2}]}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("a: &x {k: &y 1}\nb: [*x, *y]", {"a": {"k": 1}, "b": [{"k": 1}, 1]}),
        ("a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}", {"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}}),
        ("b: {l: 3, <<: {k: 1, l: 2}}", {"b": {"l": 3, "k": 1}}),
        (
            "a: [&x {k: 1}, &y {k: 2, l: 2}]\nb: {<<: [*x, *y], m: 3}",
            {"a": [{"k": 1}, {"k": 2, "l": 2}], "b": {"m": 3, "k": 1, "l": 2}},
        ),
        (
            "a: &x {k: 1}\nb: &y {<<: *x, l: 2}\nc: {<<: *y}",
            {"a": {"k": 1}, "b": {"k": 1, "l": 2}, "c": {"k": 1, "l": 2}},
        ),
        ('a: {"<<": 1}\nb: [<<]', {"a": {"<<": 1}, "b": ["<<"]}),
    ],
)
def test_what_an_alias_or_a_merge_key_stands_for(text: str, value: Any) -> None:
    assert read(text)[:2] == (value, [])


def test_what_came_from_an_alias_is_not_shared() -> None:
    value, _, _ = read("a: &x {k: [1]}\nb: *x\nc: {<<: *x}")
    value["b"]["k"].append(2)
    assert (value["a"]["k"], value["c"]["k"]) == ([1], [1])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: *nobody", "a: is an alias (*nobody) of nothing"),
        ("a: &a [*a]", "a[0]: is an alias (*a) of nothing"),
        ("a: {<<: 1}", "a: merges the number 1 with <<, which takes mappings"),
        ("a: {<<: [[1]]}", "which takes mappings"),
        ("a: &x {k: 1, k: 2}", "a.k: is given twice"),
        (BOMB, "has more than 20000 values"),
        ("a: &a [1]\n" + "b: &b {" + "<<: {k: *a}, " * 2 + "}", ""),
    ],
)
def test_what_stands_for_nothing_or_for_too_much_is_refused(text: str, problem: str) -> None:
    _, problems, _ = read(text)
    assert problem in "\n".join(problems)


def test_a_key_has_the_line_where_it_is_written() -> None:
    _, _, lines = read("a: &x\n  k: 1\n  l: 2\nb:\n  <<: *x\n  l: 3\n")
    assert (lines["b.k"], lines["b.l"]) == (2, 6)
