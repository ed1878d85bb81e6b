"""How graphs of jobs are laid out: as numbers."""

from __future__ import annotations

import pytest

from onyx.console.graph import BOX_HEIGHT, BOX_WIDTH, GAP_X, Drawing, DrawnEdge, Node, drawn


def graph(edges: str, back: str = "") -> Drawing:
    pairs = [each.split("-") for each in edges.split()]
    names = dict.fromkeys(name for pair in pairs for name in pair)
    more = [DrawnEdge(*each.split("-"), kind="back") for each in back.split()]
    return drawn([Node(name) for name in names], [DrawnEdge(a, b) for a, b in pairs] + more)


def layers(drawing: Drawing) -> dict[int, list[str]]:
    """The tasks of each layer, from top to bottom."""
    found: dict[int, list[str]] = {}
    for box in sorted(drawing.boxes, key=lambda each: (each.x, each.y)):
        found.setdefault(box.x // (BOX_WIDTH + GAP_X), []).append(box.node.name)
    return found


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ("a-b b-c", {0: ["a"], 1: ["b"], 2: ["c"]}),
        ("a-b a-c b-d c-d", {0: ["a"], 1: ["b", "c"], 2: ["d"]}),
        ("a-b b-c a-c", {0: ["a"], 1: ["b"], 2: ["c"]}),
        ("a-x b-y a-z b-w", {0: ["a", "b"], 1: ["x", "z", "y", "w"]}),
    ],
)
def test_a_task_is_a_layer_behind_its_last_parent_and_near_it(
    edges: str, expected: dict[int, list[str]]
) -> None:
    assert layers(graph(edges)) == expected


@pytest.mark.parametrize("edges", ["a-b b-c a-c", "a-b a-c a-d b-e c-e d-e a-e", "a-b c-b d-b b-e"])
def test_no_boxes_overlap_and_all_are_in_the_picture(edges: str) -> None:
    drawing = graph(edges)
    for one in drawing.boxes:
        assert 0 <= one.x <= drawing.width - BOX_WIDTH
        assert 0 <= one.y <= drawing.height - BOX_HEIGHT
        for other in drawing.boxes:
            apart = abs(one.y - other.y) >= BOX_HEIGHT or one.x != other.x
            assert apart or one is other


def test_an_edge_over_a_layer_passes_beside_the_box_between() -> None:
    drawing = graph("a-b b-c a-c")
    between = next(box for box in drawing.boxes if box.node.name == "b")
    (long,) = (
        each for each in drawing.curves if (each.edge.source, each.edge.target) == ("a", "c")
    )
    across = int(long.path.split("L")[1].split("C")[0].split()[1])
    assert not between.y <= across <= between.y + BOX_HEIGHT


def test_a_loop_goes_back_below_all_boxes() -> None:
    drawing = graph("a-b b-c c-d", back="c-b")
    back = drawing.curves[-1]
    assert back.edge.kind == "back"
    assert back.y > max(box.y for box in drawing.boxes) + BOX_HEIGHT - 8
    assert drawing.height > back.y


def test_a_single_task_is_a_drawing() -> None:
    drawing = drawn([Node("all")], [])
    assert (len(drawing.boxes), drawing.curves) == (1, ())


def test_a_large_graph_is_laid_out() -> None:
    edges = " ".join(f"t{n}-t{m}" for n in range(0, 240, 2) for m in (n + 2, n + 3))
    assert len(graph(edges).boxes) > 120
