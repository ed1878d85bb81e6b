"""Files that the operator itself reads, as a mounted Secret would be: a folder changes at once.

Whoever reads a certificate and its key while they are renewed must not get one of each.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path


def put(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Let a folder have these files and no others; whether that changed anything."""
    if _content(folder) == files:
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    for name, content in files.items():
        with open(os.open(new / name, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(content)
    former = folder.resolve() if folder.is_symlink() else None
    link = new.with_suffix(".link")
    link.symlink_to(new.name)
    os.replace(link, folder)
    if former is not None:
        shutil.rmtree(former, ignore_errors=True)
    return True


def _content(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    return {each.name: each.read_bytes() for each in folder.iterdir()}
