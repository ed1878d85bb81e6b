"""What is declared has an effect: metrics that something writes, settings that something reads,
modules that something imports."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

from onyx.settings import Settings
from onyx.telemetry.interface import GroupMetrics, TaskMetrics

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "worker" / "onyx"
SOURCES = {
    path.relative_to(ENGINE).as_posix(): path.read_text()
    for path in sorted(ENGINE.rglob("*.py"))
    if "wire" not in path.parts
}
OTHERS = "\n".join(
    path.read_text()
    for path in (ROOT / "pyproject.toml", ROOT / "Makefile", *sorted(ROOT.glob("tests/**/*.py")))
)
FOR_USERS = {"testing/plugin_kit.py", "testing/__init__.py"}


def code_outside(*prefixes: str) -> str:
    return "\n".join(text for path, text in SOURCES.items() if not path.startswith(prefixes))


def test_every_metric_hook_is_called_by_the_runtime() -> None:
    code = code_outside("telemetry/")
    hooks = [
        name
        for interface in (TaskMetrics, GroupMetrics)
        for name in vars(interface)
        if not name.startswith("_")
    ]
    assert len(hooks) > 10
    assert [name for name in hooks if not re.search(rf"metrics\.{name}\b", code)] == []


def test_every_setting_is_read() -> None:
    code = code_outside("settings.py")
    values = [Settings()]
    unread = []
    for value in values:
        for each in fields(value):
            inner = getattr(value, each.name)
            if is_dataclass(inner):
                values.append(inner)  # type: ignore[arg-type]
            elif not re.search(rf"\.{each.name}\b", code):
                unread.append(f"{type(value).__name__}.{each.name}")
    assert len(values) > 5
    assert unread == []


def test_every_module_is_used() -> None:
    """Imported by the engine, named in one of its tables, or started as a command."""
    unused = []
    for path in SOURCES:
        name = "onyx." + path.removesuffix(".py").replace("/", ".")
        package, _, module = name.rpartition(".")
        if module in ("__init__", "__main__") or path in FOR_USERS:
            continue
        used = rf"{re.escape(name)}\b|from {re.escape(package)} import [^\n]*\b{module}\b"
        listed = rf"from {re.escape(package)} import \([^)]*\b{module}\b"
        others = "\n".join(text for other, text in SOURCES.items() if other != path)
        in_package = re.search(
            rf"\b{module}\b", SOURCES.get(f"{path.rpartition('/')[0]}/__init__.py", "")
        )
        if not (re.search(f"{used}|{listed}", others) or in_package or name in OTHERS):
            unused.append(name)
    assert unused == []
