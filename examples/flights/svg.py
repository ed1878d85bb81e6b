"""A few shapes as SVG, which is text that every browser shows: enough for three diagrams, and a
plotting library less to install."""

from html import escape

WIDTH, LEFT, RIGHT = 1200, 170, 40
GAP = 84
"""Between two panels, with the title of the lower one in it."""
TEXT, FAINT, GRID = "#1f2937", "#6b7280", "#e5e7eb"


class Panel:
    """A diagram under its title, `height` high; y goes down, x from 0 to 1."""

    def __init__(self, title, remark, height):
        self.height = height
        self.parts = [text(LEFT, -30, title, size=18, weight=600), text(LEFT, -11, remark, FAINT)]

    def add(self, *parts):
        self.parts.extend(parts)

    def mark(self, x, words, anchor="start"):
        """Words below the x axis."""
        self.add(text(across(x), self.height + 16, words, FAINT, anchor=anchor))


def across(x):
    return LEFT + x * (WIDTH - LEFT - RIGHT)


def text(x, y, words, colour=TEXT, size=13, anchor="start", weight=400):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{escape(words)}</text>'
    )


def line(points, colour=GRID, width=1):
    """Through all points, in units of the picture."""
    way = "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="{width}"'
        ' stroke-linejoin="round"/>'
    )


def bar(begin, end, y, height, colour, label):
    """From one x to another, at least so wide that it is seen; `label` is shown under the mouse."""
    width = max(across(end) - across(begin), 1.5)
    return (
        f'<rect x="{across(begin):.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"'
        f' fill="{colour}"><title>{escape(label)}</title></rect>'
    )


def shade(pale, dark, share):
    """A colour between two, for a share from 0 to 1 and whatever is beyond."""
    share = min(max(share, 0), 1)
    mixed = (round(low + (high - low) * share) for low, high in zip(pale, dark, strict=True))
    return f"rgb({','.join(map(str, mixed))})"


def picture(panels):
    """All panels below each other."""
    y, parts = GAP, []
    for panel in panels:
        parts += [f'<g transform="translate(0,{y})">', *panel.parts, "</g>"]
        y += panel.height + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y - GAP // 2}"'
        ' font-family="system-ui, sans-serif">'
    )
    paper = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, paper, *parts, "</svg>\n"])
