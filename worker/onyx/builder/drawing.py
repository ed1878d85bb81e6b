"""The graph of a job as SVG, for notebooks: tasks in columns by their distance from the inputs.

It takes a manifest that need not be valid, because a job is looked at while it is put together.
Rejected: Graphviz and Mermaid, which need a program or a network where the notebook is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

COLUMN_PX, ROW_PX, MARGIN_PX = 190, 58, 10
WIDTH_PX, HEIGHT_PX = 150, 40
_CHARACTERS_MAX = 20
_COLORS = {
    "input": "#dbeafe",
    "function": "#f3f4f6",
    "reduce": "#fef3c7",
    "output": "#dcfce7",
    "table": "#ede9fe",
    "join": "#fce7f3",
}

Place = tuple[int, int]
"""Left upper corner of a box, in pixels."""


def drawing(manifest: Mapping[str, Any]) -> str:
    """The text of the SVG."""
    spec = manifest.get("spec", {})
    entries = {str(each.get("name")): each for each in spec.get("catalog", ())}
    edges = [(str(a), str(b)) for a, b in spec.get("workflow", ()) if {a, b} <= entries.keys()]
    columns = _columns(list(entries), edges)
    places = {
        name: (MARGIN_PX + x * COLUMN_PX, MARGIN_PX + y * ROW_PX)
        for x, column in enumerate(columns)
        for y, name in enumerate(column)
    }
    width = 2 * MARGIN_PX + COLUMN_PX * len(columns)
    height = 2 * MARGIN_PX + ROW_PX * max(map(len, columns), default=0)
    chosen = _conditional(spec)
    lines = [_edge(places[a], places[b], (a, b) in chosen) for a, b in edges]
    boxes = [_box(places[name], name, entry, spec) for name, entry in entries.items()]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        '<defs><marker id="onyx-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#6b7280"/></marker></defs>'
    )
    return "\n".join([head, *lines, *boxes, "</svg>"])


def _columns(tasks: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Tasks by the longest path that leads to each; in a circle, which is not valid, somewhere."""
    depth = dict.fromkeys(tasks, 0)
    for _ in tasks:
        for parent, child in edges:
            depth[child] = max(depth[child], min(depth[parent] + 1, len(tasks) - 1))
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for task in tasks:
        found[depth[task]].append(task)
    return [column for column in found if column]


def _conditional(spec: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Edges that a flow condition sends segments along."""
    return {
        (str(parent), str(child))
        for each in spec.get("flowConditions", ())
        for parent in _names(each.get("from"))
        for child in _names(each.get("to"))
    }


def _names(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _edge(start: Place, end: Place, dashed: bool) -> str:
    x, y = start[0] + WIDTH_PX, start[1] + HEIGHT_PX // 2
    to_x, to_y = end[0], end[1] + HEIGHT_PX // 2
    bend = (COLUMN_PX - WIDTH_PX) // 2
    path = f"M{x} {y} C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="#6b7280"{dash} marker-end="url(#onyx-arrow)"/>'


def _box(place: Place, name: str, entry: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    x, y = place
    color = _COLORS.get(str(entry.get("type")), "#ffffff")
    windows = [str(w.get("type")) for w in spec.get("windows", ()) if w.get("task") == name]
    parts = [entry.get("plugin") or entry.get("fn") or entry.get("sparkStage") or entry.get("type")]
    parts += [f"{each} window" for each in windows]
    middle = x + WIDTH_PX // 2
    title = escape(", ".join(map(str, parts)))
    below = escape(_short(", ".join(map(str, parts)).replace("None", "")))
    return (
        f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{WIDTH_PX}" height="{HEIGHT_PX}" '
        f'rx="6" fill="{color}" stroke="#9ca3af"/>'
        f'<text x="{middle}" y="{y + 17}" text-anchor="middle">{escape(_short(name))}</text>'
        f'<text x="{middle}" y="{y + 32}" text-anchor="middle" fill="#6b7280" font-size="10">'
        f"{below}</text></g>"
    )


def _short(text: str) -> str:
    return (
        text
        if len(text) <= _CHARACTERS_MAX
        else f"{text[: _CHARACTERS_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
