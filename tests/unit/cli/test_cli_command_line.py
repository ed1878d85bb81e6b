"""What the words of a command line become, what is said of wrong ones, and the page of help."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from onyx.cli.command_line import Argument, Misuse, Option, run
from onyx.cli.command_table import COMMANDS, command, run_command


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Ladder(Struct, frozen=True):
    rungs: Annotated[int, Option("--rungs", "How high.")] = 8
    steel: Annotated[bool, Option("--steel", "Not wood.")] = False


def paint(
    wall: Annotated[Path, Argument("The wall.")],
    words: Annotated[list[str] | None, Argument("What to write.", metavar="WORD")] = None,
    colour: Annotated[Colour, Option("--colour -c", "Its colour.")] = Colour.RED,
    coats: Annotated[int, Meta(ge=1, le=9), Option("--coats", "How many.", variable="COATS")] = 1,
    hours: Annotated[float | None, Option("--hours", "How long.")] = None,
    tools: Annotated[list[str] | None, Option("--tool", "What with.")] = None,
    finish: Annotated[Literal["matt", "gloss"], Option("--finish", "How it shines.")] = "matt",
    ladder: Ladder = Ladder(),  # noqa: B008
    dry: Annotated[bool, Option("--dry", "Touch nothing.")] = False,
) -> None:
    """Paint a wall.

    Once it is dry, write on it.
    """
    PAINTED.append(locals())


PAGE = """\
usage: onyx paint [-h] [--colour red|blue] [--coats INTEGER] [--hours NUMBER]
                  [--tool TEXT] [--finish matt|gloss] [--rungs INTEGER]
                  [--steel] [--dry]
                  WALL [WORD ...]

Paint a wall.

Once it is dry, write on it.

positional arguments:
  WALL                      The wall. [required]
  WORD                      What to write.

options:
  -h, --help                show this help message and exit
  --colour red|blue, -c red|blue
                            Its colour. [default: red]
  --coats INTEGER           How many. [variable: COATS; default: 1; >= 1; <= 9]
  --hours NUMBER            How long.
  --tool TEXT               What with.
  --finish matt|gloss       How it shines. [default: matt]
  --rungs INTEGER           How high. [default: 8]
  --steel                   Not wood.
  --dry                     Touch nothing.
"""
PAINTED: list[dict[str, Any]] = []
BY_DEFAULT = {
    "wall": Path("north"),
    "words": None,
    "colour": Colour.RED,
    "coats": 1,
    "hours": None,
    "tools": None,
    "finish": "matt",
    "ladder": Ladder(),
    "dry": False,
}


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["north"], {}),
        (["north", "--colour", "blue"], {"colour": Colour.BLUE}),
        (["-c", "blue", "north", "--coats=3"], {"colour": Colour.BLUE, "coats": 3}),
        (["north", "a", "--dry", "b"], {"words": ["a", "b"], "dry": True}),
        (["--dry", "--", "north"], {"dry": True}),
        (["-"], {"wall": Path("-")}),
        (["north", "--hours", "-1.5"], {"hours": -1.5}),
        (["north", "--hours", "0"], {"hours": 0}),
        (["north", "--tool=--dry", "--tool", "a=b"], {"tools": ["--dry", "a=b"]}),
        (["north", "--coats", "2", "--coats", "3"], {"coats": 3}),
        (["north", "--finish", "gloss"], {"finish": "gloss"}),
        (["north", "--steel", "--rungs", "3"], {"ladder": Ladder(3, True)}),
    ],
)
def test_words_become_values(words: Sequence[str], given: dict[str, Any]) -> None:
    run("paint", paint, words)
    assert PAINTED.pop() == BY_DEFAULT | given


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: WALL"),
        (["north", "--dy"], "no such option: --dy; did you mean --dry?"),
        (["north", "--zzzz"], "no such option: --zzzz"),
        (["north", "--dry=1"], "--dry: ignored explicit argument '1'"),
        (["north", "--coats"], "--coats: expected one argument"),
        (["north", "--coats", "0"], "--coats: expected `int` >= 1"),
        (["north", "--coats", "x"], "--coats: expected `int`, got `str`"),
        (["north", "-c", "green"], "--colour/-c: 'green' is none of red, blue"),
        (["north", "--finish", ""], "--finish: '' is none of matt, gloss"),
    ],
)
def test_what_cannot_be_followed_is_said(words: Sequence[str], said: str) -> None:
    with pytest.raises(Misuse) as raised:
        run("paint", paint, words)
    assert str(raised.value) == said
    assert PAINTED == []


def test_a_place_that_nothing_is_for_is_refused() -> None:
    with pytest.raises(Misuse, match="'job' is one argument too many"):
        run("gc", command("gc"), ["job"])


@pytest.mark.parametrize(
    ("variable", "words", "coats"),
    [("4", [], 4), ("4", ["--coats", "2"], 2), ("", [], 1)],
)
def test_a_variable_has_the_value_that_the_command_line_has_not(
    variable: str, words: list[str], coats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COATS", variable)
    run("paint", paint, ["north", *words])
    assert PAINTED.pop()["coats"] == coats


def test_a_page_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("paint", paint, ["--help"])
    assert ended.value.code == 0
    assert _words(capsys.readouterr().out) == _words(PAGE)


def _words(page: str) -> list[str]:
    """Each version of Python lays out its columns otherwise, and 3.13 joins the names of an
    option."""
    return page.replace("--colour red|blue, -c", "--colour, -c").split()


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_page_that_fits_80_columns(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_command([name, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: onyx {name} [")
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rum"], "error: no such command: rum; did you mean run?\nsee onyx --help\n"),
        (["--xyz"], "error: no such option: --xyz\nsee onyx --help\n"),
        (["run"], "error: the following arguments are required: FILE\nsee onyx run --help\n"),
    ],
)
def test_a_command_that_is_misused_ends_with_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == said
