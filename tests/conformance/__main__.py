"""Run conformance case files: `python -m tests.conformance FILE...`.

The adapter of a file is `tests.conformance.adapters.<stem>` (`-` and `.` become `_`) with
`check(case, document) -> str | None`: None when the case passes, else what was wrong in one line.
Cases that we decided to answer differently are listed in `decided.yaml` with the reason; they are
run too, and must fail in the way that the decision says (`expect` is part of what is printed, or
one of several), so that a decision cannot hide something else. An id with a `*` stands for cases of
one kind, which may also pass.
"""

from __future__ import annotations

import importlib
import json
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent


def adapter_name(path: Path) -> str:
    return path.stem.replace("-", "_").replace(".", "_")


def run_file(path: Path) -> tuple[int, list[str], int]:
    """(passed, one line for each failing case, decided) of one case file."""
    document: dict[str, Any] = json.loads(path.read_text())
    decided = (yaml.safe_load((HERE / "decided.yaml").read_text()) or {}).get(path.name, {})
    adapter = importlib.import_module(f"tests.conformance.adapters.{adapter_name(path)}")
    passed, different, failures = 0, 0, []
    for case in document["cases"]:
        name = str(case["id"])
        try:
            wrong = adapter.check(case, document)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if name in decided:
            if _is_decided(wrong, decided[name]):
                different += 1
            else:
                failures.append(f"{path.name} {name}: decided otherwise, but: {wrong or 'passes'}")
        elif wrong is None:
            passed += 1
        elif any(_is_decided(wrong, each) for key, each in decided.items() if fnmatch(name, key)):
            different += 1
        else:
            failures.append(f"{path.name} {name}: {wrong}")
    return passed, failures, different


def _is_decided(wrong: str | None, decision: dict[str, Any]) -> bool:
    expected = decision["expect"]
    reported = [expected] if isinstance(expected, str) else expected
    return wrong is not None and any(each in wrong for each in reported)


def main(arguments: list[str]) -> int:
    if not arguments:
        sys.stderr.write("usage: python -m tests.conformance FILE...\n")
        return 2
    passed, failed, different = 0, 0, 0
    for argument in arguments:
        ok, failures, decided = run_file(Path(argument))
        passed, failed, different = passed + ok, failed + len(failures), different + decided
        for line in failures:
            sys.stdout.write(line + "\n")
    if different:
        sys.stdout.write(f"{different} answered differently by decision (decided.yaml)\n")
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
