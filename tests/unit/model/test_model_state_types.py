"""Types of states: what their names mean, and which hold all that another one holds."""

from __future__ import annotations

import pytest

from onyx.model.state_types import DEPTH_MAX, parse_state_type


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ("value[int]", "value", True),
        ("value", "value[int]", False),
        ("value[int]", "value[float]", False),
        ("list[int]", "value[list[int]]", False),
        ("map[str, list[int]]", "map[str, list[int]]", True),
        ("map[str, list[int]]", "map[str, list]", True),
        ("map[str, list[int]]", "map", True),
        ("map[str, list[int]]", "map[str, list[str]]", False),
        ("value[map[int, str]]", "value[map[any, str]]", True),
        ("value[map[int, str]]", "value[map[str, str]]", False),
        ("list[struct[a: int]]", "list[struct[a: int, b: str]]", True),
        ("list[struct[a: int, b: str]]", "list[struct[a: int]]", False),
        ("list[struct[a: int]]", "list[struct[a: any]]", True),
        ("list[struct[a: int]]", "list[struct[a: str]]", False),
    ],
)
def test_a_state_may_become_wider(old: str, new: str, fits: bool) -> None:
    assert parse_state_type(old).fits(parse_state_type(new)) is fits


@pytest.mark.parametrize(
    "text", ["int", "list[map[str, list[any]]]", "struct[a: int, b: list[str]]"]
)
def test_a_type_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_state_type(f"value[{text}]").value) == text
    assert str(parse_state_type(f" value [ {text.replace(', ', ' ,')} ] ").value) == text


def test_types_do_not_nest_without_end() -> None:
    with pytest.raises(ValueError, match="nests deeper than 16"):
        parse_state_type("value" + "[list" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1))
