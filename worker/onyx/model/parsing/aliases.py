"""Aliases of YAML: each becomes the events of the node that its anchor names, once more.

Events are handed on one by one, so whoever counts them can stop: an alias of aliases of aliases
costs no more than what was read of it. What is kept is bounded by that too, for a node is kept once
for each anchor around it. An alias that stands for nothing, or for a node that it is in, is handed
on as it is. A value does not remember that it came from an alias; its line is that of the anchor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml
from msgspec import field

_BEGINS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class _AnchoredNode(msgspec.Struct):
    """A node with an anchor, while it is read."""

    anchor: str
    events: list[Any] = field(default_factory=list)
    depth: int = 0


def expanded(events: Iterator[Any]) -> Iterator[Any]:
    """The events of a document without aliases that stand for something."""
    known: dict[str, list[Any]] = {}
    reading: list[_AnchoredNode] = []
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            inside = any(each.anchor == event.anchor for each in reading)
            again = known.get(str(event.anchor))
            for each in [event] if inside or again is None else again:
                _keep(each, reading, known)
                yield each
            continue
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            reading.append(_AnchoredNode(event.anchor))
        _keep(event, reading, known)
        yield event


def _keep(event: Any, reading: list[_AnchoredNode], known: dict[str, list[Any]]) -> None:
    for each in reading:
        each.events.append(event)
        each.depth += isinstance(event, _BEGINS) - isinstance(event, _ENDS)
    while reading and reading[-1].depth == 0:
        ended = reading.pop()
        known[ended.anchor] = ended.events
