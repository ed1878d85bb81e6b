"""Curves over one axis, and bars, as SVG files, without a library for it: small enough to read in a
diff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP = 760, 130, 90, 30
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


BAR = 9


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


def write_bars(path: Path, title: str, groups: Mapping[str, Mapping[str, float]]) -> None:
    """The bars of each group side by side, on a scale of powers of ten; values are above zero."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    every = [value for group in groups.values() for value in group.values()]
    least, most = (
        floor(log10(min(every))),
        max(ceil(log10(max(every))), floor(log10(min(every))) + 1),
    )
    step = BAR * (len(names) + 1)
    top, tall = 3 * TOP, 2 * HEIGHT
    width, bottom = LEFT + step * len(groups) + 20, top + tall
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 30}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{bottom + 30}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
    ]
    for power in range(least, most + 1):
        y = bottom - (power - least) / (most - least) * tall
        parts.append(f'<path d="M{LEFT} {y:.1f}H{width - 20}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>')
    for number, name in enumerate(names):
        x, colour = LEFT + number * 100, COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{x}" y="{top - 42}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="{top - 32}">{escape(name)}</text>')
    for place, (label, group) in enumerate(groups.items()):
        left = LEFT + place * step + BAR / 2
        middle = left + BAR * len(names) / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(label)}</text>'
        )
        for number, name in enumerate(names):
            if name in group:
                high = (log10(group[name]) - least) / (most - least) * tall
                corner = f'x="{left + number * BAR:.1f}" y="{bottom - high:.1f}"'
                size = f'width="{BAR - 1}" height="{high:.1f}"'
                colour = COLOURS[number % len(COLOURS)]
                parts.append(f'<rect {corner} {size} fill="{colour}"/>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")
