"""The graph of a job, laid out in layers from left to right; pure.

A job is small (256 tasks at most), so boxes and curves are computed on the server: a page shows
them without a script, and a test compares them as numbers. Layers are those of the longest path to
a task. An edge over several layers goes around the boxes between, by way of a *bend* in each layer.
The order within a layer is that of the means of the neighbours', swept there and back.

Rejected: Graphviz in WebAssembly and ELK, megabytes of foreign code for a few dozen boxes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

BOX_WIDTH, BOX_HEIGHT = 188, 62
GAP_X, GAP_Y = 124, 22
MARGIN = 14
BEND_HEIGHT = 16
SWEEPS = 6
LABEL_OFF = 14
"""How far before the box that an edge leads to its label ends: those of one source differ there."""

Mark = Literal["", "runs", "waits", "slow", "failed", "ended"]


class Node(msgspec.Struct, frozen=True):
    """A task as it is shown."""

    name: str
    kind: str = ""
    """What it is: `input kafka`."""
    about: str = ""
    """What is known of it, in a few words."""
    figure: str = ""
    """How busy it is, or how fast."""
    mark: Mark = ""
    why: str = ""
    """What the mark stands for, in words."""


class DrawnEdge(msgspec.Struct, frozen=True):
    """The way from a task to another one."""

    source: str
    target: str
    label: str = ""
    """What is known of it, in a few words."""
    figure: str = ""
    """How much passes."""
    why: str = ""
    """What is known of it, in whole sentences."""
    is_held: bool = False
    """Whether it is full: who sends waits for room."""
    kind: Literal["flow", "condition", "back"] = "flow"
    """`back`: to the beginning of a loop."""


class Box(msgspec.Struct, frozen=True):
    """A task, and where it is."""

    x: int
    y: int
    node: Node


class Curve(msgspec.Struct, frozen=True):
    """An edge as the path of an SVG, and where its label is."""

    path: str
    x: int
    y: int
    edge: DrawnEdge


class Drawing(msgspec.Struct, frozen=True):
    """A graph that is laid out."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    curves: tuple[Curve, ...]
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


def drawn(nodes: Sequence[Node], edges: Sequence[DrawnEdge]) -> Drawing:
    """The drawing of a graph, which has no cycles but by edges that go `back`."""
    forward = [edge for edge in edges if edge.kind != "back"]
    layer_of = _layers(nodes, forward)
    layers, chains = _with_bends(nodes, forward, layer_of)
    _order(layers, chains)
    middles = _middles(layers, chains)
    top = min((middles[each] - _height(each) // 2 for layer in layers for each in layer), default=0)
    at = {
        each: (MARGIN + number * (BOX_WIDTH + GAP_X), middles[each] - top + MARGIN)
        for number, layer in enumerate(layers)
        for each in layer
    }
    bottom = max((y + _height(each) // 2 for each, (_, y) in at.items()), default=0)
    boxes = [Box(at[n.name][0], at[n.name][1] - BOX_HEIGHT // 2, n) for n in nodes]
    curves = [
        _curve([at[each] for each in chain], edge)
        for edge, chain in zip(forward, chains, strict=True)
    ]
    back = [edge for edge in edges if edge.kind == "back"]
    for number, edge in enumerate(back, 1):
        curves.append(_arc(at[edge.source], at[edge.target], bottom + 18 * number, edge))
    width = 2 * MARGIN + len(layers) * (BOX_WIDTH + GAP_X) - GAP_X
    height = bottom + 18 * len(back) + MARGIN
    return Drawing(max(width, 0), height, tuple(boxes), tuple(curves))


Place = str | tuple[int, int]
"""In a layer: the name of a task, or the bend of an edge (its number) in a layer."""


def _layers(nodes: Sequence[Node], edges: Sequence[DrawnEdge]) -> dict[str, int]:
    """The layer of each task: one behind the last of its parents."""
    found = {node.name: 0 for node in nodes}
    for _ in nodes:
        moved = False
        for edge in edges:
            if found[edge.target] <= found[edge.source]:
                found[edge.target] = found[edge.source] + 1
                moved = True
        if not moved:
            break
    return found


def _with_bends(
    nodes: Sequence[Node], edges: Sequence[DrawnEdge], layer_of: Mapping[str, int]
) -> tuple[list[list[Place]], list[list[Place]]]:
    """What is in each layer, and the places that each edge passes."""
    layers: list[list[Place]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for node in nodes:
        layers[layer_of[node.name]].append(node.name)
    chains: list[list[Place]] = []
    for number, edge in enumerate(edges):
        bends: list[Place] = []
        for layer in range(layer_of[edge.source] + 1, layer_of[edge.target]):
            bends.append((number, layer))
            layers[layer].append(bends[-1])
        chains.append([edge.source, *bends, edge.target])
    return layers, chains


def _neighbours(chains: Sequence[Sequence[Place]]) -> tuple[dict[Place, list[Place]], ...]:
    """Neighbours: those in the layer before each place, and those in the one behind it."""
    before: dict[Place, list[Place]] = {}
    behind: dict[Place, list[Place]] = {}
    for chain in chains:
        for first, second in pairwise(chain):
            before.setdefault(second, []).append(first)
            behind.setdefault(first, []).append(second)
    return before, behind


def _order(layers: list[list[Place]], chains: Sequence[Sequence[Place]]) -> None:
    """Sort each layer so that few edges cross."""
    before, behind = _neighbours(chains)
    for sweep in range(SWEEPS):
        there = sweep % 2 == 0
        near = before if there else behind
        for layer in layers if there else layers[::-1]:
            index = {each: number for own in layers for number, each in enumerate(own)}
            mean = {
                each: sum(index[other] for other in near[each]) / len(near[each])
                if each in near
                else float(index[each])
                for each in layer
            }
            layer.sort(key=lambda each: mean[each])


def _height(place: Place) -> int:
    return BOX_HEIGHT if isinstance(place, str) else BEND_HEIGHT


def _middles(
    layers: Sequence[Sequence[Place]], chains: Sequence[Sequence[Place]]
) -> dict[Place, int]:
    """How far down the middle of each place is: as near to that of its neighbours as the others of
    its layer let it."""
    before, behind = _neighbours(chains)
    found: dict[Place, float] = {}
    for layer in layers:
        _stack(layer, dict.fromkeys(layer, 0.0), found)
    for sweep in range(SWEEPS):
        there = sweep % 2 == 0
        near = before if there else behind
        for layer in layers if there else layers[::-1]:
            wanted = {
                each: sum(found[other] for other in near[each]) / len(near[each])
                if each in near
                else found[each]
                for each in layer
            }
            _stack(layer, wanted, found)
    return {each: round(y) for each, y in found.items()}


def _stack(
    layer: Sequence[Place], wanted: Mapping[Place, float], found: dict[Place, float]
) -> None:
    """Put a layer down in its order, each where it is wanted or below the one before; then all so
    that they are off as much upwards as downwards."""
    below = float("-inf")
    for each in layer:
        found[each] = max(wanted[each], below + _height(each) / 2)
        below = found[each] + _height(each) / 2 + GAP_Y
    off = sum(found[each] - wanted[each] for each in layer) / max(1, len(layer))
    for each in layer:
        found[each] -= off


def _curve(points: Sequence[tuple[int, int]], edge: DrawnEdge) -> Curve:
    """From the right of the first box to the left of the last one."""
    (x, y), *more = points
    x += BOX_WIDTH
    path = [f"M{x} {y}"]
    for number, (next_x, next_y) in enumerate(more):
        half = (next_x - x) // 2
        path.append(f"C{x + half} {y} {next_x - half} {next_y} {next_x} {next_y}")
        x, y = next_x, next_y
        if number < len(more) - 1:  # a bend is as wide as a box
            x += BOX_WIDTH
            path.append(f"L{x} {y}")
    return Curve("".join(path), x - LABEL_OFF, y - 7, edge)


def _arc(source: tuple[int, int], target: tuple[int, int], below: int, edge: DrawnEdge) -> Curve:
    """Back below all boxes."""
    x, y = source[0] + BOX_WIDTH // 2, source[1] + BOX_HEIGHT // 2
    to_x, to_y = target[0] + BOX_WIDTH // 2, target[1] + BOX_HEIGHT // 2
    path = f"M{x} {y}C{x} {below} {x} {below} {(x + to_x) // 2} {below}"
    path += f"S{to_x} {below} {to_x} {to_y}"
    return Curve(path, (x + to_x) // 2, below - 5, edge)
