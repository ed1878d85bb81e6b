"""What the job says of a task that keeps state; each kind of operator has a definition of its own.

It is a value, made once of the job, and part of the program. What runs it is an operator
(`operator`), which `operators.table` finds for it, so whoever runs a program never asks which kind
it is. What the task around an operator must give or must not do is said here too (`Needs`): it is
known before there is any state.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import msgspec
from msgspec import field

from onyx.flow.groups.getters import KeyGetter
from onyx.flow.groups.keys import shard_of
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import Shards, only_shard


class Needs(NamedTuple):
    """What an operator needs of the task around it, beside groups."""

    parents_apart: bool = False
    """A batch is of one parent, which it names."""
    inbox: bool = False
    """It may leave a part of a batch, which comes again when it may take that."""
    user_code_at_start: bool = False
    """To begin it calls code of the user's."""
    absorbs: bool = False
    """What comes to the task goes no further: only what the operator emits does."""
    answers: bool = True
    """What it emits belongs to the requests that have brought the segments."""
    in_trees: bool = False
    """What it makes of a segment goes on in the tree of that, when it is durable."""
    engine: bool = False
    """Another engine keeps a part of the state in files."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """An operator as the job describes it."""

    task: str
    fed_by: frozenset[str]
    """Tasks upstream that begin trees: when they have ended, this one ends."""
    group_key: KeyGetter | None = None
    """How segments are grouped; None: they are not."""
    group_keys: GroupKeys = field(default_factory=GroupKeys)
    """The group keys of columns."""
    is_split: bool = True
    """Whether the state is split by key groups."""
    unique_key: str | None = None
    """The key by which segments are recognized that the source itself repeats."""
    late_to: tuple[str, ...] = ()
    """Children that get late segments."""

    needs: Needs = Needs()
    """What it needs of the task around it."""
    is_cooperative: bool | None = None
    """Whether its code returns soon; None: the job says so."""

    words: ClassVar[str]
    """What is at fault when the operator raises, for people."""

    @property
    def is_in_buckets(self) -> bool:
        """Whether buckets of a query of Spark share the key groups; else one has all of them."""
        return self.is_split and self.group_key is not None

    def shards(self) -> Shards:
        """What gives the key groups of groups; it knows none that somebody has."""
        return Shards(shard_of if self.is_split else only_shard)

    def key_of(self, parent: str | None) -> KeyGetter | None:
        """How segments of a parent are grouped."""
        return self.group_key
