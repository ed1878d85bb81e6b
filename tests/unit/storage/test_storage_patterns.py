"""Which files of this machine a pattern matches."""

import glob
import os

import pytest

from onyx.storage.files import LocalFiles

FILES = ("a.txt", "x/b.txt", "x/y/c.txt", "x/y/[d].txt", ".hidden/e.txt", "x/.f.txt", "x/g.csv")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    [
        "**",
        "**/*.txt",
        "x/**",
        "x/**/*.txt",
        "**/y/*",
        "*/**/c.txt",
        "x/**/**/*.txt",
        "a**/*",
        "x/*",
    ],
)
def test_any_depth_means_what_it_means_for_glob(tree, pattern):
    for each in (pattern, f"{tree}/{pattern}"):
        wanted = [path for path in glob.glob(each, recursive=True) if os.path.isfile(path)]
        assert sorted(LocalFiles().matching(each)) == sorted(dict.fromkeys(wanted))


def test_any_depth_does_not_go_through_links_to_folders(tree):
    (tree / "x" / "again").symlink_to(tree)
    (tree / "link").symlink_to(tree / "x")
    (tree / "one.txt").symlink_to(tree / "a.txt")
    found = LocalFiles().matching("**/*.txt")
    assert sorted(found) == ["a.txt", "one.txt", "x/b.txt", "x/y/[d].txt", "x/y/c.txt"]
    assert sorted(LocalFiles().matching("link/**/*.txt")) == [
        "link/b.txt", "link/y/[d].txt", "link/y/c.txt",
    ]  # fmt: skip
