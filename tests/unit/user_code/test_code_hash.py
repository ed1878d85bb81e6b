"""The hash of a worker's code: what changes it, and what does not."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onyx.user_code import code_hash as hashing
from onyx.user_code.code_hash import code_hash

FILES = {
    "hashed_jobs.py": "import hashed_help\ndef f(s): return s\n",
    "hashed_help.py": "FACTOR = 1\n",
    "unrelated.py": "",
    "hashed_pack/__init__.py": "",
    "hashed_pack/jobs.py": "def f(s):\n    from .inner import deep\n    return s\n",
    "hashed_pack/other.py": "from . import inner\nimport hashed_help\n",
    "hashed_pack/inner/__init__.py": "",
    "hashed_pack/inner/deep.py": "from ... import up\nimport hashed_help\n",
    "hashed_open/jobs.py": "",
    "hashed_open/beside.py": "",
    "hashed_pack/open/deeper/more.py": "",
    "hashed_lazy.py": "def f(s):\n    import hashed_pack.open.deeper.more\n",
}
Hash = Callable[..., str]


def written(root: Path) -> Path:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def hash_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hash]:
    """Hashes modules that are in a folder."""

    def found(root: Path, *modules: str) -> str:
        with monkeypatch.context() as patch:
            patch.syspath_prepend(root)
            importlib.invalidate_caches()
            return code_hash(modules)

    yield found
    assert not [each for each in sys.modules if each.startswith("hashed_")], "nothing is imported"


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("hashed_jobs", "hashed_jobs.py"),
        ("hashed_jobs", "hashed_help.py"),
        ("hashed_pack", "hashed_pack/__init__.py"),
        ("hashed_pack", "hashed_pack/other.py"),
        ("hashed_pack", "hashed_help.py"),
        ("hashed_pack.jobs", "hashed_pack/jobs.py"),
        ("hashed_pack.jobs", "hashed_pack/__init__.py"),
        ("hashed_pack.jobs", "hashed_pack/inner/deep.py"),
        ("hashed_pack.jobs", "hashed_help.py"),
        ("hashed_open", "hashed_open/beside.py"),
        ("hashed_lazy", "hashed_pack/open/deeper/more.py"),
        ("hashed_open.jobs", "hashed_open/jobs.py"),
    ],
)
def test_it_changes_with_what_is_listed_and_what_that_imports(
    hash_in: Hash, tmp_path: Path, module: str, file: str
) -> None:
    before = hash_in(written(tmp_path), module)
    assert re.fullmatch("[0-9a-f]{8}", before)
    (tmp_path / file).write_text(FILES[file] + "# other\n")
    assert hash_in(tmp_path, module) != before
    (tmp_path / file).write_text(FILES[file])
    assert hash_in(tmp_path, module) == before


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("hashed_jobs", "unrelated.py"),
        ("hashed_pack.jobs", "hashed_pack/other.py"),
        ("hashed_open.jobs", "hashed_open/beside.py"),
        ("hashed_pack", "hashed_pack/..2026_11_23/jobs.py"),
        ("hashed_pack", "hashed_pack/.#jobs.py"),
        ("hashed_pack", "hashed_pack/notes.txt"),
        ("hashed_pack", "hashed_pack/__pycache__/jobs.pyc"),
    ],
)
def test_other_files_do_not_change_it(
    hash_in: Hash, tmp_path: Path, module: str, file: str
) -> None:
    before = hash_in(written(tmp_path), module)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("# other\n")
    assert hash_in(tmp_path, module) == before


def test_it_is_the_same_on_all_machines(hash_in: Hash, tmp_path: Path) -> None:
    modules = "hashed_jobs", "hashed_pack", "hashed_open.jobs"
    one, other = written(tmp_path / "one"), written(tmp_path / "elsewhere" / "other")
    os.utime(other / "hashed_jobs.py", (1, 1))
    assert hash_in(one, *modules) == hash_in(other, *reversed(modules))


def test_a_file_that_takes_another_name_changes_it(hash_in: Hash, tmp_path: Path) -> None:
    before = hash_in(written(tmp_path), "hashed_open")
    (tmp_path / "hashed_open/beside.py").rename(tmp_path / "hashed_open/besides.py")
    assert hash_in(tmp_path, "hashed_open") != before


def test_without_modules_there_is_none() -> None:
    assert code_hash(()) == ""


def test_odd_files_harm_nothing(hash_in: Hash, tmp_path: Path) -> None:
    package = written(tmp_path) / "hashed_pack"
    (package / "broken.py").write_bytes(b"\xff\x00 import (")
    (package / "gone.py").symlink_to(tmp_path / "nowhere")
    (package / "round").symlink_to(package)
    (package / "folder.py").mkdir()
    os.mkfifo(package / "pipe.py")
    (package / "far.py").write_text("from ..... import up\nfrom .no import thing\nimport no.such\n")
    (package / os.fsdecode(b"\xff.py")).write_text("")
    assert re.fullmatch("[0-9a-f]{8}", hash_in(tmp_path, "hashed_pack", "no_such_module"))


@pytest.mark.parametrize(("limit", "value"), [("FILES_MAX", 3), ("BYTES_MAX", 40)])
def test_too_much_code_is_cut_and_said(
    hash_in: Hash,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: str,
    value: int,
) -> None:
    monkeypatch.setattr(hashing, limit, value)
    assert hash_in(written(tmp_path), "hashed_pack") == hash_in(tmp_path, "hashed_pack")
    assert "covers only the first of them" in caplog.text
