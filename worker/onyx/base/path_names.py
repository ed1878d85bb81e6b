"""The one rule for names that become a part of a path: of a file, an object or a ZooKeeper node.

Ids of jobs and groups, tenancies, tasks and digests end up in all three, and a name that the path
takes apart reaches outside of its folder: a job of the id `../..` once had files of others deleted.
So a name is letters and digits of ASCII with `.`, `_` and `-` between them. That leaves no
separator, no `.` or `..`, no hidden file, nothing that a shell or a URL takes for an option or an
escape, and no two texts that a file system holds for one after Unicode normalisation. Its longest
form fits a file name of 255 bytes beside a task's name and what stores add.

The rule is applied where a name is read (`model/kinds`), where an entry of the log is
(`replica/command`), and again by whoever makes a path of it, because those are the last
to know. Escaping other names was rejected: what a user sees in a folder should be what the user
wrote, and two ways to write a name are two names sooner or later. Names that sources give
(partitions, which are paths by nature) are never parts of a path: they get numbers.
"""

from __future__ import annotations

import re

from onyx.errors import UserError

CHARACTERS_MAX = 128
PATH_NAME = rf"[A-Za-z0-9]([A-Za-z0-9._-]{{0,{CHARACTERS_MAX - 2}}}[A-Za-z0-9])?"
"""A regular expression for a whole name, in the syntax that Python and RE2 share."""
ALPHABET = (
    f"letters, digits, '-', '_' and '.', first and last a letter or digit, at most {CHARACTERS_MAX}"
)
"""The rule in words."""

_SHOWN_CHARACTERS_MAX = 60
_PATH_NAME = re.compile(PATH_NAME + r"\Z")
_FILE_NAME = re.compile(
    rf"_?[A-Za-z0-9]([A-Za-z0-9._=-]{{0,{2 * CHARACTERS_MAX - 3}}}[A-Za-z0-9])?\Z"
)
_PLAIN_NAME = re.compile(r"\w([\w $.-]*[\w$])?\Z")
PLAIN_NAMES = (
    "letters, digits, '_' and '$', with spaces, '.' and '-' between them, at most "
    f"{CHARACTERS_MAX} characters"
)
"""What `is_plain_name` allows, in words."""


def is_path_name(text: object) -> bool:
    """Whether a value is a text that may become a part of a path or node."""
    return isinstance(text, str) and _PATH_NAME.match(text) is not None


def path_name(text: str, what: str) -> str:
    """The text, which is text.

    Args:
        what: what it names, for the message: `the id of a job`.

    Raises:
        UserError: it cannot be a part of a path.
    """
    if not is_path_name(text):
        raise UserError(f"{_told(text)} cannot be {what}: use {ALPHABET}")
    return text


def is_plain_name(text: object) -> bool:
    """Whether a value is a text that may name a table or a column, of which others make paths and
    statements: Spark a folder of each value of a column by which it splits files."""
    return (
        isinstance(text, str)
        and len(text) <= CHARACTERS_MAX
        and _PLAIN_NAME.match(text) is not None
        and ".." not in text
    )


def climbs(path: str) -> bool:
    """Whether a path has a part `..`, which leads out of the folder before it."""
    return ".." in re.split(r"[/\\]", path)


def path_of_names(text: str, what: str) -> list[str]:
    """The parts of a relative path that is made of names, joined by `/`.

    Raises:
        UserError: a part of it is no name.
    """
    return [path_name(part, f"a part of {what}") for part in text.split("/")]


def file_path(text: str) -> list[str]:
    """The parts of the relative path of a file, joined by `/`. Each is a name as others are, but
    has up to 255 characters, `=` too, and may begin with `_`, as what lies beside data does.

    Raises:
        UserError: a part of it is no name of a file.
    """
    parts = text.split("/")
    for part in parts:
        if not is_file_name(part):
            raise UserError(f"{_told(part)} cannot be a part of the name of a file: use {ALPHABET}")
    return parts


def is_file_name(text: str) -> bool:
    """Whether it may be a part of the path of a file."""
    return _FILE_NAME.match(text) is not None


def staged_name(name: str) -> str:
    """How a file is called that is not published yet, and a note about one.

    Hidden and without the ending of its format, because many readers of `**/*.jsonl` look into
    hidden folders too, and would take what is staged for published.
    """
    return f"{staged_begin(name)}.staged"


def staged_begin(name: str) -> str:
    """How all staged names begin of files whose names begin with `name`."""
    return f".{name.replace('.', '-')}"


def _told(text: object) -> str:
    shown = ascii(text)
    return shown if len(shown) <= _SHOWN_CHARACTERS_MAX else f"{shown[:_SHOWN_CHARACTERS_MAX]}..."
