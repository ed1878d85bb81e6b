"""Style that no linter checks, as tests: sizes, docstrings, circles, forbidden names and words, the
operator trap."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "worker" / "onyx", ROOT / "operator" / "onyx_operator")
SOURCES = sorted(
    path
    for package in PACKAGES
    for path in package.rglob("*.py")
    if not {"wire", "generated"} & set(path.relative_to(ROOT).parts)
)
FILE_LINES_MAX = 900
"""A module is a chapter: one subject, read from top to bottom."""
FUNCTION_LINES_MAX = 50
FOLDER_MODULES_MAX = 28
UNDOCUMENTED_MAX = 0.05
"""The share of public classes and functions without text; what overrides a documented method needs
no text."""
WITHOUT_A_NOUN = re.compile(r"(Of|The same|Those|As|See)\b")
VAGUE_WORDS = re.compile(r"\b(told|tells)\b", re.IGNORECASE)
"""Things are logged, reported, proposed or raised: the word that says which is the better one."""
VAGUE_WORDS_MAX = 60
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
FORBIDDEN_CALLS = {"eval", "exec"}
DECODERS = {"msgspec.json.decode", "msgspec.msgpack.decode", "json.loads", "json.load"}
NARROW_ERRORS = re.compile(r"\b(msgspec\.(DecodeError|MsgspecError)|JSONDecodeError)\b")
"""Text that is no UTF-8, and nesting without an end, are none of these (`structs.UNREADABLE`)."""
MESSAGES = (
    "processes/worker_process.py", "plugins/http/bodies.py", "spark/objects/", "spark_query/",
    "spark_source/rows.py", "sql/engine.py", "testing/",
)  # fmt: skip
"""What is decoded there was encoded by this process or by one of ours that lives: it is not stored
anywhere; and bodies of HTTP, whose caller explains what is wrong with them."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All that stand in a file: to find them takes longer than to look at them."""
    return list(ast.walk(tree(path)))


def line_count(path: Path) -> int:
    return path.read_text().count("\n")


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_module_has_two_subjects() -> None:
    large = {
        str(path.relative_to(ROOT)): line_count(path)
        for path in SOURCES
        if line_count(path) > FILE_LINES_MAX
    }

    assert large == {}


def test_functions_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in functions(path)
        if (node.end_lineno or node.lineno) - node.lineno > FUNCTION_LINES_MAX
    ]

    assert long == []


def test_folders_are_small() -> None:
    modules = Counter(path.parent for path in SOURCES if path.name != "__init__.py")

    assert {str(at): n for at, n in modules.items() if n > FOLDER_MODULES_MAX} == {}


def test_imports_go_in_no_circle() -> None:
    """Neither those that only a type checker follows."""
    graph = grimp.build_graph("onyx", "onyx_operator", cache_dir=None)
    imports = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}

    TopologicalSorter(imports).prepare()  # a circle would raise CycleError, which names it


def test_packages_import_each_other_in_no_circle() -> None:
    """A room of the house is understood by itself and what is below it."""
    rooms = _imports_of(depth=2)

    TopologicalSorter({room: found for room, found in rooms.items() if "." in room}).prepare()


def test_rooms_of_a_package_import_each_other_in_no_circle() -> None:
    """Nor can a part of a room be understood that leads back to itself through another one."""
    below = _imports_of(depth=3)
    for package in {room.rpartition(".")[0] for room in below if room.count(".") == 2}:
        mine = {room for room in below if room.startswith(f"{package}.")}

        TopologicalSorter({room: below[room] & mine for room in mine}).prepare()


def _imports_of(depth: int) -> dict[str, set[str]]:
    """What the packages at this depth import of each other."""
    graph = grimp.build_graph("onyx", "onyx_operator", cache_dir=None)
    imports: dict[str, set[str]] = {}
    for module in graph.modules:
        found = imports.setdefault(room_of(module, depth), set())
        imported = graph.find_modules_directly_imported_by(module)
        found.update(room_of(each, depth) for each in imported)
    return {room: found - {room} for room, found in imports.items()}


def room_of(module: str, depth: int) -> str:
    """`onyx.log` of `onyx.log.zookeeper.session` at depth 2; what lies in none is one by itself."""
    return ".".join(module.split(".")[:depth])


def test_docstrings_begin_with_what_they_are_about() -> None:
    """`Of a task`, `The same`, `See Other` say nothing to who reads only this one."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value.value.splitlines()[0]}"
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and WITHOUT_A_NOUN.match(node.value.value)
    ]

    assert found == []


def public_names(node: ast.Module | ast.ClassDef, at: str = "") -> Iterator[tuple[str, bool]]:
    """Each public class and function with whether it has a docstring, methods included."""
    for each in node.body:
        if not isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        decorators = {ast.unparse(one).rpartition(".")[2] for one in each.decorator_list}
        if each.name.startswith("_") or decorators & {"override", "overload", "setter"}:
            continue
        yield f"{at}{each.name}", ast.get_docstring(each) is not None
        if isinstance(each, ast.ClassDef):
            yield from public_names(each, f"{at}{each.name}.")


def test_public_names_are_documented() -> None:
    found = [
        (f"{path.relative_to(ROOT)}: {name}", documented)
        for path in SOURCES
        for name, documented in public_names(tree(path))
    ]
    silent = [name for name, documented in found if not documented]

    assert len(silent) <= UNDOCUMENTED_MAX * len(found), silent


def test_words_say_what_happens() -> None:
    listed = ["git", "ls-files", "worker", "operator", "docs", "charts", "crds", "proto", "*.md"]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = [
        f"{name}: {line.strip()}"
        for name in files.split()
        if (ROOT / name).suffix in (".py", ".md", ".yaml", ".proto", ".txt", ".tpl", ".json")
        for line in (ROOT / name).read_text().splitlines()
        if VAGUE_WORDS.search(line)
    ]

    assert len(found) < VAGUE_WORDS_MAX, found


def test_every_module_says_what_it_is() -> None:
    silent = [str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(tree(path))]

    assert silent == []


def test_nothing_is_unpickled_or_evaluated() -> None:
    found = []
    for path in SOURCES:
        for node in nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            if FORBIDDEN_MODULES.intersection(names):
                found.append(f"{path}: imports {names}")
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id in FORBIDDEN_CALLS:
                found.append(f"{path}:{node.lineno} calls {called.id}")

    assert found == []


@pytest.mark.parametrize("folder", ["operator", "worker"])
def test_a_top_folder_is_no_package(folder: str) -> None:
    """An `__init__.py` in `operator/` would shadow the standard library's module of that name."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_the_standard_operator_module_is_found_from_the_root() -> None:
    command = [sys.executable, "-c", "import operator; operator.eq(1, 1)"]

    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def name_of(node: ast.expr) -> str:
    """`prepared` of `@prepared`, `json.decode` of `msgspec.json.decode(...)`."""
    return ast.unparse(node).removeprefix("msgspec.")


def classes_read(path: Path) -> Iterator[str]:
    """Names of the classes that msgspec is asked to read when a value comes."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and name_of(node.func) in READERS:
            kinds = [each.value for each in node.keywords if each.arg == "type"]
            kinds += node.args[1:] if name_of(node.func) == "convert" else []
            yield from (kind.id for kind in kinds if isinstance(kind, ast.Name))


READERS = ("convert", "json.decode", "msgpack.decode")
CHECKED_OTHERWISE = {"hint", "kind"}
"""Variables and not classes: `onyx.base.structs.convert`, whose callers see to it, and
`onyx.replica.canonical`, which reads the prepared structs of a job's spec."""


def test_classes_that_msgspec_reads_are_prepared_for_threads() -> None:
    """Why: `onyx.base.structs`."""
    prepared = {
        node.name
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and "prepared" in map(name_of, node.decorator_list[:1])
    }
    read = {name for path in SOURCES for name in classes_read(path)}

    assert len(read) > 5
    assert read - prepared - CHECKED_OTHERWISE == set()


IS_A_URL = re.compile(r"""\b(is_url|urlparse|urlsplit)\(|"://" (not )?in\b|"s3://"\)""")


def test_only_storage_asks_whether_a_path_is_a_url() -> None:
    """[a folder or a bucket is decided once: decision 0061]"""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        if "storage" not in path.parts and "model" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if IS_A_URL.search(line)
    ]
    # A URL of a database or endpoint, the address of a broker without a scheme: no places of files.
    known = {
        "worker/onyx/plugins/sql/options.py",
        "worker/onyx/plugins/kafka/options.py",
        "worker/onyx/plugins/http/options.py",
    }
    assert {each.partition(":")[0] for each in found} <= known, found


def test_bytes_that_were_stored_are_decoded_where_an_error_names_them() -> None:
    """By `structs.stored`, or in a `try` that knows all that decoding may raise."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in SOURCES
        if not "/".join(path.relative_to(ROOT).parts[2:]).startswith(MESSAGES)
        for call in _unguarded(tree(path))
        if ast.unparse(call.func) in DECODERS
    ]

    assert found == []


def test_errors_of_decoding_are_caught_as_a_whole() -> None:
    narrow = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node.type)}"
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and node.type is not None
        and NARROW_ERRORS.search(ast.unparse(node.type))
    ]

    assert narrow == []


def _unguarded(node: ast.AST) -> Iterator[ast.Call]:
    """Calls that are in no `try`."""
    if isinstance(node, ast.Call):
        yield node
    guarded = node.body if isinstance(node, ast.Try) else []
    for child in ast.iter_child_nodes(node):
        if child not in guarded:
            yield from _unguarded(child)
