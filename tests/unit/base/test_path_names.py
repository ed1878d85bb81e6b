"""The rule for names that become parts of paths."""

import pytest
from tests.support.hostile_names import KNOWN

from onyx.base.path_names import CHARACTERS_MAX, is_path_name, path_name, path_of_names
from onyx.errors import UserError

GOOD = [
    "a", "7", "Job_1", "nightly-2024.01.01", "a..b", "a" * CHARACTERS_MAX,
    "0b6f2a0e-4c47-4b1c-9d5e-1f3a5b7c9d11", "team.onyx",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_a_name_is_kept_as_it_is(text):
    assert path_name(text, "a name") == text


@pytest.mark.parametrize("text", KNOWN, ids=lambda name: ascii(name)[:12])
def test_what_leads_elsewhere_or_may_mean_something_else_is_no_name(text):
    assert not is_path_name(text)
    with pytest.raises(UserError, match="cannot be the id of a job: use letters, digits"):
        path_name(text, "the id of a job")


@pytest.mark.parametrize("value", [None, 7, True, b"a", ["a"]])
def test_what_is_no_text_is_no_name(value):
    assert not is_path_name(value)


def test_a_message_does_not_repeat_thousands_of_characters():
    with pytest.raises(UserError) as caught:
        path_name("a" * 3_000, "the id of a job")
    assert len(str(caught.value)) < 300


def test_the_longest_names_fit_a_file_name_together():
    assert len(f"gone.{'a' * CHARACTERS_MAX}.{'b' * 63}") <= 255


@pytest.mark.parametrize("text", ["a/../b", "a/", "/a", "a//b", "../a", "a/.hidden"])
def test_every_part_of_a_path_is_a_name(text):
    with pytest.raises(UserError, match="cannot be a part of the path"):
        path_of_names(text, "the path")
