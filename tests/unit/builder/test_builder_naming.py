"""A function as an object has a name by which workers find it, or is refused with the reason."""

from __future__ import annotations

import importlib
import math
import sys
import textwrap
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onyx.builder import Job, files
from onyx.builder.values import name_of
from onyx.errors import UserError
from onyx.user_code.resolve import Resolver

MODULE = """
    from functools import wraps

    def age(year, person):
        return {"age": year - person["born"]}

    def quiet(function):
        @wraps(function)
        def wrapper(segment):
            return function(segment)
        return wrapper

    @quiet
    def decorated(segment):
        return segment

    def made():
        def inner(segment):
            return segment
        return inner

    def _private(segment):
        return segment

    class Tool:
        def method(self, segment):
            return segment

    nameless = lambda segment: segment
    closure = made()
    first = age

    def age(year, person):
        return {"age": year - person["born"]}
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "builder_app").mkdir()
    (tmp_path / "builder_app" / "__init__.py").touch()
    (tmp_path / "builder_app" / "tasks.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [each for each in sys.modules if each.startswith("builder_app")]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("builder_app.tasks")


@pytest.mark.parametrize("name", ["age", "decorated", "made"])
def test_a_function_of_a_module_is_found_by_its_name_in_a_worker(
    app: ModuleType, name: str
) -> None:
    function = getattr(app, name)
    found = name_of(function)
    assert found == f"builder_app.tasks:{name}"
    assert Resolver(["builder_app.tasks"]).resolve(found) is function


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda app: app.nameless, r"<lambda> \(.*tasks\.py, line \d+\) is a lambda"),
        (lambda app: app.closure, r"inner \(.*\) is defined within a function.*become params"),
        (lambda app: app.first, r"is not what builder_app\.tasks has under this name"),
        (lambda app: getattr(app, "_private"), r"is private"),  # noqa: B009
        (lambda app: app.Tool.method, r"Tool\.method"),
        (lambda app: app.Tool().method, r"method is no plain function"),
        (lambda app: app.Tool, r"Tool is no plain function"),
        (lambda app: partial(app.age, 2013), r"partial is no plain function.*with def in a module"),
        (lambda app: math.sqrt, r"sqrt is no plain function"),
    ],
)
def test_what_a_worker_could_not_find_is_refused_with_the_reason(
    app: ModuleType, made: Any, why: str
) -> None:
    with pytest.raises(UserError, match=why):
        Job("ages").read(files("people.csv")).map(made(app))


def program(monkeypatch: pytest.MonkeyPatch, **attributes: Any) -> Any:
    """A function of the program that is run."""
    main = ModuleType("__main__")
    vars(main).update(attributes)
    exec("def age(person):\n    return person\n", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    return vars(main)["age"]


def test_a_function_of_the_program_has_the_name_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "builder_program.py"
    file.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    age = program(monkeypatch, __file__=str(file), __spec__=None)
    assert name_of(age) == "builder_program:age"


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (None, "of a notebook or a prompt, which no worker can import: write it to a file"),
        ("my-job.py", "of a program that cannot be imported as 'my-job'"),
        ("elsewhere/ages.py", "of a program that cannot be imported as 'ages'"),
        ("json.py", "of a program that cannot be imported as 'json'"),
    ],
)
def test_a_function_of_a_program_that_nobody_can_import_is_refused(
    file: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = {} if file is None else {"__file__": str(tmp_path / file)}
    if file is not None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    with pytest.raises(UserError, match=why):
        name_of(program(monkeypatch, **attributes))
