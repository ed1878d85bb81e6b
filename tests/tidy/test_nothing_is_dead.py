"""What is declared has an effect: metrics that something writes, settings that something reads,
modules that something imports."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from onyx.base.structs import fields, is_struct
from onyx.settings import Settings
from onyx.telemetry.interface import GroupMetrics, TaskMetrics
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import OperatorSettings

ROOT = Path(__file__).parents[2]


def sources(package: Path) -> dict[str, str]:
    return {
        path.relative_to(package).as_posix(): path.read_text()
        for path in sorted(package.rglob("*.py"))
        if "wire" not in path.relative_to(ROOT).parts
    }


SOURCES = sources(ROOT / "worker" / "onyx")
OPERATOR = sources(ROOT / "operator" / "onyx_operator")
OTHERS = "\n".join(
    path.read_text()
    for path in (ROOT / "pyproject.toml", ROOT / "Makefile", *sorted(ROOT.glob("tests/**/*.py")))
)
SERVING = "\n".join(text for path, text in SOURCES.items() if path.startswith("serving/"))
"""What reads limits of whoever serves."""
FOR_USERS = {"plugin.py", "testing/__init__.py"}


def code_outside(of: dict[str, str], *prefixes: str) -> str:
    return "\n".join(text for path, text in of.items() if not path.startswith(prefixes))


@pytest.mark.parametrize(
    ("code", "interfaces"),
    [
        (code_outside(SOURCES, "telemetry/"), (TaskMetrics, GroupMetrics)),
        (code_outside(OPERATOR, "metrics.py"), (OperatorMetrics,)),
    ],
    ids=["engine", "operator"],
)
def test_every_metric_hook_is_called_by_the_runtime(code: str, interfaces: tuple[type]) -> None:
    hooks = [name for each in interfaces for name in vars(each) if not name.startswith("_")]
    assert len(hooks) > 5
    assert [name for name in hooks if not re.search(rf"metrics\.{name}\b", code)] == []


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        (code_outside(SOURCES, "settings.py"), Settings()),
        (code_outside(OPERATOR, "settings.py") + SERVING, OperatorSettings()),
    ],
    ids=["engine", "operator"],
)
def test_every_setting_is_read(code: str, settings: Any) -> None:
    values, unread = [settings], []
    for value in values:
        for each in fields(type(value)):
            inner = getattr(value, each.name)
            if is_struct(type(inner)) and (inner != Settings()):
                values.append(inner)
            elif not re.search(rf"\.{each.name}\b", code):
                unread.append(f"{type(value).__name__}.{each.name}")
    assert len(values) > 4
    assert unread == []


def test_every_module_is_used() -> None:
    """Imported by the engine, named in one of its tables, or started as a command."""
    named_by: dict[str, set[str]] = defaultdict(set)
    for path, text in SOURCES.items():
        for name in modules_named(text):
            named_by[name].add(path)
    elsewhere = modules_named(OTHERS)
    unused = []
    for path in SOURCES:
        name = "onyx." + path.removesuffix(".py").replace("/", ".")
        package, _, module = name.rpartition(".")
        if module in ("__init__", "__main__") or path in FOR_USERS:
            continue
        if package == "onyx.cli.commands":  # found by name, which test_cli_lazy checks
            continue
        in_package = re.search(
            rf"\b{module}\b", SOURCES.get(f"{path.rpartition('/')[0]}/__init__.py", "")
        )
        if not (named_by[name] - {path} or in_package or name in elsewhere):
            unused.append(name)
    assert unused == []


def modules_named(text: str) -> set[str]:
    """Modules of the engine that stand in a text: dotted, or imported from their packages."""
    found = set()
    for dotted in re.findall(r"\bonyx(?:\.\w+)+", text):
        parts = dotted.split(".")
        found |= {".".join(parts[:depth]) for depth in range(2, len(parts) + 1)}
    for package, several, one in re.findall(
        r"\bfrom (onyx[.\w]*) import (?:\(([^)]*)|([^\n]*))", text
    ):
        found |= {f"{package}.{word}" for word in re.findall(r"\w+", several or one)}
    return found


def test_what_names_a_module_is_found_in_a_text() -> None:
    text = "from onyx.a import (\n    b,\n    c as d,\n)\nfrom onyx.e import f\nrun(onyx.g.h)\n"
    assert {"onyx.a.b", "onyx.a.c", "onyx.e.f", "onyx.g.h"} <= modules_named(text)
    assert modules_named("import onyxes") == set()
