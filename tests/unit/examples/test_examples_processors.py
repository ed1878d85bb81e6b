"""The processor of the examples, in every way the engine may run it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from onyx.testing import verify_processor

FOLDER = Path(__file__).parents[3] / "examples" / "features"


def test_the_processor_of_the_examples_is_right_in_every_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    boxes = importlib.import_module("boxes")
    orders = [{"customer": "ab"[n % 2], "id": n} for n in range(7)]
    verify_processor(
        lambda: boxes.Boxes(2),
        input=orders,
        output=[
            {"customer": "a", "box": [0, 2]},
            {"customer": "b", "box": [1, 3]},
            {"customer": "a", "box": [4, 6]},
            {"customer": "b", "box": [5]},
        ],
        group_by=lambda order: order["customer"],
    )
