"""A ring of real groups on a list instead of a log: instant, in order, without faults."""

from __future__ import annotations

from collections import defaultdict

import pytest

from onyx.ids import GroupId, PeerId, Position
from onyx.peer import group
from onyx.peer.group import (
    Action,
    AddPeers,
    AppendCommands,
    EntryRead,
    Event,
    OriginRead,
    PulseGone,
)
from onyx.replica.command import Command, Entry
from onyx.replica.effects import ProbePulse, WatchPulse
from onyx.replica.members import watched_by
from onyx.replica.state import Replica


class Ring:
    """Groups by name; the actions of each; the log that they share."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.states: dict[str, group.GroupState] = {}
        self.actions: dict[str, list[Action]] = defaultdict(list)
        self.dead: set[str] = set()
        self._sequences: dict[str, int] = defaultdict(int)

    def start(self, name: str, *peers: str) -> None:
        state, actions = group.start(GroupId(name), Replica())
        self.states[name] = state
        self._perform(name, actions)
        if peers:
            self.feed(name, AddPeers(tuple(map(PeerId, peers)), {"address": name}))

    def feed(self, name: str, event: Event) -> tuple[Action, ...]:
        self.states[name], actions = group.step(self.states[name], event)
        self._perform(name, actions)
        return actions

    def write(self, command: Command, *, writer: str = "") -> None:
        """Append."""
        self._write(writer, command, None)

    def read(self, name: str) -> bool:
        """One group reads its next entry; False when there is none."""
        position = self.states[name].replica.version + 1
        if self.states[name].ended or position >= len(self.log):
            return False
        self.feed(name, EntryRead(self.log[position]))
        return True

    def play(self, *names: str) -> None:
        """The named groups (all, when none is named) read until there is nothing left."""
        while sum(self.read(name) for name in names or self.alive()):
            pass

    def jump(self, name: str, other: str) -> tuple[Action, ...]:
        """`name` goes on from an origin that is the replica of `other`."""
        replica = self.states[other].replica
        return self.feed(name, OriginRead(replica.version, replica))

    def kill(self, *names: str) -> None:
        """Pulses disappear; their watchers get an event."""
        self.dead.update(names)
        for name in names:
            for watcher in self.alive():
                if name in self.watched()[watcher]:
                    self.feed(watcher, PulseGone(GroupId(name)))

    def alive(self) -> list[str]:
        return [name for name in self.states if name not in self.dead]

    def written(self, name: str) -> list[str]:
        """Names of the commands that a group has written."""
        return [entry.command.NAME for entry in self.log if entry.writer == name]

    def pairs(self, name: str) -> dict[str, str]:
        return dict(self.states[name].replica.pairs)

    def watched(self) -> dict[str, list[str]]:
        return {name: list(watched_by(self.states[name].replica, name)) for name in self.alive()}

    def _perform(self, name: str, actions: tuple[Action, ...]) -> None:
        self.actions[name].extend(actions)
        for action in actions:
            if isinstance(action, AppendCommands):
                for command in action.commands:
                    self._write(name, command, action.parent)
            elif isinstance(action, WatchPulse | ProbePulse) and action.group in self.dead:
                self.feed(name, PulseGone(action.group))

    def _write(self, writer: str, command: Command, parent: Position | None) -> None:
        self._sequences[writer] += 1
        sequence = self._sequences[writer] if writer else 0
        position = Position(len(self.log))
        self.log.append(Entry(position, command, writer, sequence, parent))


@pytest.fixture
def ring() -> Ring:
    return Ring()
