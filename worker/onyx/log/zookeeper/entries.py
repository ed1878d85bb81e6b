"""Reads many entries of the log at once, for who does not follow it."""

from __future__ import annotations

from collections.abc import Sequence

from onyx.codec.entries import decode_entry
from onyx.ids import Position
from onyx.log.paths import Paths, entry_positions
from onyx.log.zookeeper.multi_read import NODES_MAX, read_nodes
from onyx.log.zookeeper.session import ZooKeeperSession
from onyx.replica.entry import Entry


def read_entries(
    session: ZooKeeperSession, paths: Paths, after: Position, entries_max: int
) -> list[Entry]:
    """The first entries after a position that are there now; those collected meanwhile are left
    out."""
    children = session.perform(lambda client: client.get_children_async(paths.log))
    wanted = sorted(p for p in entry_positions(children) if p > after)[:entries_max]
    entries: list[Entry] = []
    for start in range(0, len(wanted), NODES_MAX):
        entries.extend(_fetch(session, paths, wanted[start : start + NODES_MAX]))
    return entries


def _fetch(session: ZooKeeperSession, paths: Paths, positions: Sequence[Position]) -> list[Entry]:
    nodes = [paths.entry(position) for position in positions]
    found = session.perform(lambda client: read_nodes(client, nodes))
    return [
        decode_entry(position, data)
        for position, data in zip(positions, found, strict=True)
        if data is not None
    ]
