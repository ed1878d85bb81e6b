"""The file system of a small image: Python, one virtual environment, a few programs, nothing else.

Debian's own base is most of the size of a small image and nearly all of what scanners find in it,
so the image starts empty and gets what an interpreter needs: the executable, the standard library
without its tests and tools for development, the shared libraries that the dynamic linker names, the
authorities for TLS, and the user. There is no package manager, and no shell unless it is named. All
lies where the base has it, so that the base can be laid over it. It works on any base image with a
Python on glibc, wherever it is installed.

    python rootfs.py VENV TARGET [PROGRAM...]
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

USER = "onyx:x:65532:65532:Onyx:/tmp:/nonexistent\n"
GROUP = "onyx:x:65532:\n"
LEFT_OUT = shutil.ignore_patterns(
    *("config-3*", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data"),
    *("site-packages", "test", "tkinter", "turtledemo", "_dbm*", "_gdbm*"),
)
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders at the top that today's bases have as links into /usr."""


def main(venv: Path, target: Path, programs: Iterable[Path] = ()) -> None:
    for link in (Path("/", each) for each in MERGED):
        if link.is_symlink():
            below(target, link.resolve()).mkdir(parents=True)
            below(target, link).symlink_to(link.readlink())
    executable = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, below(target, library), ignore=LEFT_OUT, symlinks=True)
    shutil.copytree(venv, below(target, venv), symlinks=True)
    copy(executable, target)
    for link in links_to(venv / "bin" / "python", executable):
        place = below(target, link)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(link.readlink())
    for program in programs:
        copy(program, target)
    standard = below(target, library).rglob("*.so")
    compiled = [executable, *standard, *venv.rglob("*.so*"), *programs]
    for shared in sorted(shared_libraries(compiled)):
        copy(shared, target)
    copy(AUTHORITIES, target)
    etc = below(target, Path("/etc"))
    (etc / "passwd").write_text(USER)
    (etc / "group").write_text(GROUP)
    (target / "tmp").mkdir()
    (target / "tmp").chmod(0o1777)


def links_to(start: Path, end: Path) -> Iterator[Path]:
    """The symbolic links from one path to another, in order."""
    while start.is_symlink():
        yield start
        start = start.parent / start.readlink()
    assert start.resolve() == end, f"{start} is not {end}"


def shared_libraries(files: Iterable[Path]) -> set[Path]:
    """What the dynamic linker loads for these files, by the names that it looks for."""
    found: set[Path] = set()
    for file in files:
        answer = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
        found.update(map(Path, re.findall(r"(/[^\s()]+\.so[^\s()]*)", answer.stdout)))
    return {path for path in found if path.is_absolute() and path.exists()}


def copy(path: Path, target: Path) -> None:
    """A file to its place below `target`; a link becomes the file."""
    place = below(target, path)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)


def below(target: Path, path: Path) -> Path:
    return target / path.relative_to("/")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [*map(Path, sys.argv[3:])])
