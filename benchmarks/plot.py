"""Curves over one axis as an SVG file, without a library for it: small enough to read in a diff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP = 760, 130, 90, 30
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


def write_svg(
    path: Path,
    title: str,
    axis: str,
    places: Sequence[float],
    curves: Mapping[str, Sequence[float]],
) -> None:
    """Each curve in a panel of its own, from zero to its greatest value, one below the other."""
    height = TOP + len(curves) * (HEIGHT + TOP) + TOP
    total = LEFT + WIDTH + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{total}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
    ]
    for number, (name, values) in enumerate(curves.items()):
        top = 2 * TOP + number * (HEIGHT + TOP)
        parts += _panel(top, name, COLOURS[number % len(COLOURS)], places, values)
    place = f'x="{LEFT + WIDTH}" y="{height - 8}" text-anchor="end"'
    parts.append(f"<text {place}>{escape(axis)}</text>")
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def _panel(
    top: float, name: str, colour: str, places: Sequence[float], values: Sequence[float]
) -> list[str]:
    most, last = max([*values, 1e-9]), max([*places, 1e-9])
    bottom = top + HEIGHT
    points = " ".join(
        f"{LEFT + place / last * WIDTH:.1f},{bottom - value / most * HEIGHT:.1f}"
        for place, value in zip(places, values, strict=True)
    )
    return [
        f'<path d="M{LEFT} {top}V{bottom}H{LEFT + WIDTH}" fill="none" stroke="#888"/>',
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most:,.4g}</text>',
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{LEFT + WIDTH}" y="{bottom + 14}" text-anchor="end">{last:,.0f}</text>',
        f'<text x="{LEFT + 6}" y="{top - 4}" fill="{colour}">{escape(name)}</text>',
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
    ]
