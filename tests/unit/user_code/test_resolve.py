"""A name in a job reaches a function of a listed module, and nothing else."""

import sys
import textwrap

import pytest

from onyx.errors import NameNotRegistered, SettingsError
from onyx.user_code.resolve import Resolver

MODULES = {
    "res_app/__init__.py": "",
    "res_app/fns.py": """
        import os
        from os import system
        from os.path import join
        from functools import wraps

        def inc(segment):
            return {"n": segment["n"] + 1}

        def noisy(function):
            @wraps(function)
            def wrapper(*args):
                return function(*args)
            return wrapper

        @noisy
        def wrapped(segment):
            return segment

        renamed = inc
        anonymous = lambda segment: segment

        class Tool:
            def method(self):
                pass

        method = Tool.method
        instance = Tool()

        async def later(segment):
            return segment

        async def stream(segment):
            yield segment

        def _private(segment):
            return segment
    """,
    "res_app/broken.py": "raise RuntimeError('no licence')",
    "res_app/_hidden.py": "def fn(s): return s",
    "res_app/__main__.py": "raise AssertionError('must not be run')",
    "res_appendix.py": "def fn(s): return s",
    "res_exits.py": "import sys; sys.exit(3)",
}


@pytest.fixture
def resolver(tmp_path, monkeypatch):
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Resolver(["res_app"])
    for name in [each for each in sys.modules if each.startswith("res_")]:
        del sys.modules[name]


def test_a_function_defined_in_a_listed_package_is_found(resolver):
    assert resolver.resolve("res_app.fns:inc")({"n": 1}) == {"n": 2}
    assert resolver.resolve("res_app.fns:inc") is resolver.resolve("res_app.fns:inc")


def test_a_decorated_function_that_keeps_its_name_is_found(resolver):
    assert resolver.resolve("res_app.fns:wrapped")({"n": 1}) == {"n": 1}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("res_app.fns:os.system", "not a name of a function"),
        ("res_app.fns:inc.__globals__", "not a name of a function"),
        ("res_app.fns:_private", "not a name of a function"),
        ("res_app.fns:__builtins__", "not a name of a function"),
        ("res_app.fns", "not a name of a function"),
        ("res_app.fns:", "not a name of a function"),
        ("../res_app:inc", "not a name of a function"),
        ("res_app.fns:inc\n", "not a name of a function"),
        ("res_app.fns:system", "only a function"),
        ("res_app.fns:os", "only a function"),
        ("res_app.fns:join", "defined in posixpath"),
        ("res_app.fns:wraps", "defined in functools"),
        ("res_app.fns:renamed", "it is inc"),
        ("res_app.fns:anonymous", "it is <lambda>"),
        ("res_app.fns:Tool", "it is a type"),
        ("res_app.fns:method", "it is Tool.method"),
        ("res_app.fns:instance", "it is a Tool"),
        ("res_app.fns:later", "async"),
        ("res_app.fns:stream", "async"),
        ("res_app.fns:increase", "has no 'increase'"),
        ("res_app.fns:in_c", "did you mean inc?"),
        ("res_app.broken:fn", "no licence"),
        ("res_app.missing:fn", "cannot be imported"),
        ("res_app._hidden:fn", "offers no functions"),
        ("res_app.__main__:fn", "offers no functions"),
        ("res_appendix:fn", "--modules res_appendix"),
        ("os:system", "--modules os"),
        ("subprocess:run", "offers no functions"),
        ("builtins:eval", "offers no functions"),
    ],
)
def test_everything_else_is_refused_with_what_to_do(resolver, name, why):
    with pytest.raises(NameNotRegistered) as refused:
        resolver.resolve(name)
    assert why in str(refused.value)


def test_a_refusal_says_where_modules_are_listed(resolver):
    with pytest.raises(NameNotRegistered) as refused:
        resolver.resolve("res_appendix:fn")
    reported = str(refused.value)
    assert "start it with --modules res_appendix or ONYX_MODULES" in reported
    assert "spec.modules of the OnyxCluster (cluster.modules of the chart)" in reported


def test_a_refused_module_is_not_imported(resolver):
    with pytest.raises(NameNotRegistered):
        resolver.resolve("res_appendix:fn")
    assert "res_appendix" not in sys.modules


def test_attributes_below_a_listed_module_that_is_no_package_are_refused():
    """`os.path` is in sys.modules although `os` is not a package."""
    with pytest.raises(NameNotRegistered, match="offers no functions"):
        Resolver(["os"]).resolve("os.path:join")


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("res_nowhere", "No module named 'res_nowhere'"),
        ("res_app.broken", "RuntimeError: no licence"),
        ("res_exits", "SystemExit"),
    ],
)
def test_a_listed_module_that_cannot_be_imported_is_known_at_start(resolver, module, why):
    with pytest.raises(SettingsError) as wrong:
        Resolver(["res_app", module])
    assert repr(module) in str(wrong.value)
    assert why in str(wrong.value)
