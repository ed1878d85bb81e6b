"""Decides whether a ZooKeeper server with an empty folder may vote. Pure.

ZooKeeper by itself treats an empty folder as that of a new server and lets it vote. Two empty
servers beside one that has all the data are then a majority: they elect one of themselves, and the
third deletes its data. So our servers never create a database by themselves
(`zookeeper.db.autocreate=false`): an empty server joins a leader that others elected, and receives
the data before it votes. Only formation lets an empty server vote:

* **A new ensemble** is formed when every server is there and holds nothing.
* **An ensemble that has served** lets no empty server vote. A server that lost its volume joins the
  others; when most have lost theirs, a person has to decide.
* **Growing**: one server stood alone and holds all the data. Just as many empty servers may vote as
  it needs for a majority, so that no majority exists without it. The others join.

Rejected: a marker outside of the volumes (a ConfigMap, an annotation), which somebody must write at
the right moment, and neither Helm's templates nor GitOps can; ZooKeeper's dynamic reconfiguration,
which has the list of servers twice and needs a superuser.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Holds(StrEnum):
    """What the folder of a server holds, as the server answers."""

    NOTHING = "nothing"
    ALONE = "alone"
    """All the data of a server that stood alone."""
    SHARED = "shared"
    """Data of an ensemble that has served."""


class Unknown(msgspec.Struct, frozen=True):
    """A server without a valid answer."""

    why: str


class Vote(msgspec.Struct, frozen=True):
    """Start, and vote even if the folder is empty."""


class Join(msgspec.Struct, frozen=True):
    """Start, and receive the data from a leader before voting."""


class Wait(msgspec.Struct, frozen=True):
    """Do not start yet."""

    reason: str


Decision = Vote | Join | Wait


def decide(me: int, answers: Mapping[int, Holds | Unknown]) -> Decision:
    """Decide for a server whose folder is empty, or that stood alone.

    Invariant: a server with all the data is never outvoted by empty ones. Empty servers vote only
    when all servers have answered and none holds data, or as just as many as the server that stood
    alone needs for a majority.

    Args:
        me: id of this server.
        answers: of every server by id, this one included.
    """
    alone = [id for id, answer in sorted(answers.items()) if answer is Holds.ALONE]
    shared = [id for id, answer in sorted(answers.items()) if answer is Holds.SHARED]
    if len(alone) > 1 or (me in alone and shared):
        return Wait(_conflict(sorted({*alone, *shared})))
    if shared:
        return Join()
    unknown = {id: each for id, each in sorted(answers.items()) if isinstance(each, Unknown)}
    if unknown:
        return Wait(_missing(unknown))
    if not alone or me in alone:
        return Vote()
    newcomers = [id for id in sorted(answers) if id not in alone]
    return Vote() if me in newcomers[: len(answers) // 2] else Join()


def _conflict(ids: list[int]) -> str:
    named = ", ".join(map(str, ids))
    return (
        f"the ZooKeeper servers {named} hold data of different ensembles: keep that of one, and "
        "empty the folders of the others"
    )


def _missing(unknown: Mapping[int, Unknown]) -> str:
    why = "; ".join(f"server {id}: {each.why}" for id, each in unknown.items())
    return (
        "waiting for the other ZooKeeper servers, because one of them may hold the data: an "
        f"ensemble is formed only when all of them have been asked ({why})"
    )
