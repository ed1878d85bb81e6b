"""What is said of the code that a job's peers run."""

from __future__ import annotations

from typing import Any

import pytest

from onyx.reports.codes import began_with, by_pool, total, warning

OLD, NEW = "3f2a9c01", "9d01aa3e"


def peers(*announced: object, tags: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    return [(tags, each) for each in announced]


@pytest.mark.parametrize(
    ("of", "began", "said"),
    [
        ([], {}, ""),
        ([], {"": OLD}, ""),
        (peers(OLD, OLD), {}, ""),
        (peers(OLD, OLD), {"": OLD}, ""),
        (peers(None, None), {"": OLD}, ""),
        (
            peers(OLD, NEW, OLD),
            {},
            f"its peers run different code: 2 run {OLD}, 1 runs {NEW}; restart the workers with "
            "the wrong one",
        ),
        (
            peers(NEW, NEW, OLD),
            {"": OLD},
            f"its peers run different code: 2 run {NEW}, 1 runs {OLD}, with {OLD} it began; "
            "restart the workers with the wrong one",
        ),
        (
            peers(OLD, None),
            {},
            f"its peers run different code: 1 runs {OLD}, 1 has no modules; restart the "
            "workers with the wrong one",
        ),
        (
            peers(NEW, NEW),
            {"": OLD},
            f"its peers run other code than it began with: 2 run {NEW}, with {OLD} it began; what "
            "they make may differ from what was made before",
        ),
        (peers(OLD) + peers(NEW, tags=("gpu",)), {"": OLD, "gpu": NEW}, ""),
        (
            peers(OLD) + peers(OLD, tags=("gpu",)),
            {"": OLD, "gpu": NEW},
            f"its peers with tags gpu run other code than it began with: 1 runs {OLD}, with {NEW} "
            "it began; what they make may differ from what was made before",
        ),
    ],
)
def test_peers_with_the_same_tags_are_compared_with_one_another_and_with_the_beginning(
    of: list[Any], began: dict[str, str], said: str
) -> None:
    assert warning(by_pool(of), began) == said


def test_hashes_are_counted_over_all_pools_the_most_first() -> None:
    found = total(by_pool([*peers(OLD, NEW), *peers(NEW, None, tags=("gpu",))]))
    assert list(found.items()) == [(NEW, 2), (OLD, 1), ("none", 1)]
    assert total(by_pool(peers(None, None))) == {}


@pytest.mark.parametrize("announced", [7, True, "", "\x1b[2J", "é" * 8, ["x"]])
def test_what_is_no_hash_is_not_shown(announced: object) -> None:
    assert total(by_pool(peers(announced, OLD))) == {OLD: 1, "none": 1}


@pytest.mark.parametrize("noted", [None, b"", b"[]", b'{"": 1}', b"\xff"])
def test_a_note_that_cannot_be_read_says_nothing(noted: bytes | None) -> None:
    assert began_with(noted) == {}
