"""Attacked: inputs and states, with a token that was taken away."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clocks import ManualClock

from onyx.requests.tokens import KEPT_S, LOOK_INTERVAL_S, Tokens


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "tokens"
    found.write_text("old\nnew\n")
    return found


@pytest.fixture
def tokens(clock: ManualClock, file: Path) -> Tokens:
    made = Tokens(clock, str(file))
    assert made.opened_by(b"old")
    return made


@pytest.mark.parametrize(
    ("left", "opens"),
    [("new\n", [b"new"]), ("", []), ("\n \n", []), ("other\n", [b"other"])],
)
def test_what_a_file_no_longer_holds_opens_nothing(
    left: str, opens: list[bytes], tokens: Tokens, file: Path, clock: ManualClock
) -> None:
    file.write_text(left)
    clock.advance(LOOK_INTERVAL_S)
    tried = (b"old", b"new", b"other", b"")
    assert [each for each in tried if tokens.opened_by(each)] == opens
    assert tokens.known() == bool(opens)


def test_a_file_that_is_replaced_is_away_for_a_minute_at_most(
    tokens: Tokens, file: Path, clock: ManualClock
) -> None:
    file.unlink()
    clock.advance(LOOK_INTERVAL_S)
    assert tokens.opened_by(b"old")
    clock.advance(KEPT_S - 1)
    assert tokens.opened_by(b"old")
    file.write_text("new\n")
    clock.advance(LOOK_INTERVAL_S)
    assert [tokens.opened_by(each) for each in (b"old", b"new")] == [False, True]


@pytest.mark.parametrize("how", ["removed", "unreadable"])
def test_a_file_that_stays_away_opens_to_nobody(
    how: str, tokens: Tokens, file: Path, clock: ManualClock
) -> None:
    file.unlink()
    if how == "unreadable":
        file.mkdir()
    clock.advance(LOOK_INTERVAL_S)
    assert tokens.opened_by(b"old")
    clock.advance(KEPT_S)
    assert not tokens.opened_by(b"old")
    assert not tokens.opened_by(b"")
    assert not tokens.known()


def test_a_file_that_comes_back_as_it_was_opens_again(
    tokens: Tokens, file: Path, clock: ManualClock
) -> None:
    away = file.rename(file.with_name("away"))
    clock.advance(LOOK_INTERVAL_S)
    tokens.known()
    clock.advance(KEPT_S)
    assert not tokens.known()
    away.rename(file)
    clock.advance(LOOK_INTERVAL_S)
    assert tokens.opened_by(b"new")
