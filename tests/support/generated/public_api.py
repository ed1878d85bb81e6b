"""The public API as a page: `python -m tests.support.generated.public_api` writes it.

Public is what a module of `MODULES` lists in `__all__`; descriptions are the first sentences of
docstrings. The page is committed, so a change of the API shows in review, and a test compares it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

MODULES = (
    "onyx",
    "onyx.api",
    "onyx.builder",
    "onyx.client",
    "onyx.plugin",
    "onyx.processors",
    "onyx.testing",
    "onyx.spark_source",
    "onyx.errors",
    "onyx.settings",
)
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "public-api.md"
_VALUES = {
    "Commit": "What `TransactionalOutput.begin` is given: `commit(token, segments)`.",
    "FAIL": "What a function returns for a segment that is to be read again.",
    "GroupId": "Id of an incarnation of a worker (str).",
    "JobId": "Id of a job (str).",
    "NO_POSITION": "Position in the log before its first entry.",
    "START": "The cursor of the beginning of a partition.",
    "Segment": "A record: `dict[str, Any]`.",
    "Token": "JSON data from which any worker can publish what was committed under it.",
    "__version__": "Version of the distribution.",
}
"""Names of values and aliases, which have no docstring at run time."""
_HEAD = """# Public API

Generated from docstrings by `python -m tests.support.generated.public_api`.

Only these names are public. Everything else may change with any version, also the modules that
define them: import each name from the module that is named here.
"""


def public_names(module: ModuleType) -> tuple[str, ...]:
    """What a public module offers."""
    return tuple(module.__all__)


def render() -> str:
    """The page."""
    sections = [_HEAD]
    for name in MODULES:
        module = importlib.import_module(name)
        rows = [f"| `{each}` | {_described(module, each)} |" for each in public_names(module)]
        sections += [f"## `{name}`\n", f"{_sentence(module.__doc__)}\n"]
        sections += ["| name | what |", "|---|---|", *rows, ""]
    return "\n".join(sections)


def _described(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    documented = inspect.isclass(value) or inspect.isfunction(value)
    return _sentence(value.__doc__ if documented else _VALUES[name])


def _sentence(text: str | None) -> str:
    """The first sentence, on one line."""
    assert text, "public names have docstrings"
    flat = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", flat, maxsplit=1)[0].rstrip(":").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render())
