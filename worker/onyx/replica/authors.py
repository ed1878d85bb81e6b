"""Who has done something to a job, as text that is safe to store and to show.

A name comes from elsewhere: from an API server, from an operating system. It has a bounded length,
and characters that end a line or move a cursor are written as escapes, when it is stored and again
when it is read, because whoever can write to the log may have written something else.
"""

from __future__ import annotations

BY_CHARACTERS_MAX = 256
AUDIT = "onyx.audit"
"""The logger of what people do to jobs. Its lines are JSON already, in every form of the log."""
UNKNOWN = "unknown"
COMMAND, KUBERNETES, WORKER = "command", "kubernetes", "worker"
PROXY, TOKEN = "proxy", "token"
UNPROVEN, FIELD_MANAGER = "unproven", "field-manager"
"""Where names come from: the user of a command or program, the user of an API server, a process of
the cluster; of the console, whom a proxy before it has named, or whose token it was; whom somebody
calls a user of the API server who may be another one, and the program that has written an object,
which anybody can choose."""


def author(source: str, name: str) -> str:
    """A name with where it is from: `kubernetes:alice`."""
    return bounded(f"{source}:{name}") if name else UNKNOWN


def bounded(by: object) -> str:
    """A name as it is stored and shown; empty if it is none."""
    if not isinstance(by, str):
        return ""
    return escaped(by, BY_CHARACTERS_MAX)


def escaped(text: str, characters_max: int) -> str:
    """Text of a bounded length without characters that end a line or move a cursor."""
    found = "".join(
        each if each.isprintable() else ascii(each)[1:-1] for each in text[: characters_max + 1]
    )
    return found if len(found) <= characters_max else found[: characters_max - 3] + "..."
