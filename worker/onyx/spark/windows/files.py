"""Files of a window by Spark in a folder that Spark sees too."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from onyx.errors import Unavailable
from onyx.spark.child.request import StageRequest
from onyx.spark.windows.spool import RESULT, SUFFIX, encode
from onyx.storage.durable import make_durable_directory, sync_directory


class SpoolFolder:
    """A file without a name, which is gone when nobody has any of its bytes."""

    def __init__(self, root: Path, mode: int | None = None) -> None:
        """`mode`: of the folder if it has to be made."""
        self.root = root
        self._mode = mode

    def make(self) -> None:
        """Make the folder."""
        with _explained(self.root):
            make_durable_directory(self.root, self._mode)

    def write(self, name: str, table: pa.Table) -> None:
        """Make a part durable."""
        target = Path(self.path(name))
        with _explained(target):
            self.make()
            temporary = target.with_name(f".{target.name}")
            encode(table, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.rename(target)
            sync_directory(self.root)

    @contextlib.contextmanager
    def asked(self, request: StageRequest, name: str) -> Iterator[StageRequest]:
        """The request, with a place for a result of this name."""
        yield msgspec.structs.replace(request, target=self.path(name))

    def settle(self, asked: StageRequest, name: str) -> None:
        """Make the result of a run durable."""
        folder = Path(asked.target)
        with _explained(folder):
            for path in folder.iterdir():
                if not _is_data(path):
                    path.unlink()  # checksums and marks of Hadoop
            for path in folder.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            sync_directory(folder)
            sync_directory(self.root)

    def path(self, name: str) -> str:
        """The path of a part or result, for a plan."""
        return str(self.root / (name if name.startswith(RESULT) else f"{name}{SUFFIX}"))

    def files(self, name: str) -> list[str]:
        """The files of a result, in the order in which they are emitted."""
        folder = self.root / name
        with _explained(folder):
            return sorted(str(path) for path in folder.iterdir() if _is_data(path))

    @contextlib.contextmanager
    def opened(self, file: str) -> Iterator[pq.ParquetFile]:
        """One of them."""
        with _explained(Path(file)), pq.ParquetFile(file) as opened:
            yield opened

    def remove(self, name: str) -> None:
        """Remove a part or result; what cannot be removed goes with the job."""
        path = Path(self.path(name))
        with contextlib.suppress(OSError):
            if name.startswith(RESULT):
                shutil.rmtree(path)
            else:
                path.unlink()


def _is_data(path: Path) -> bool:
    return path.suffix == SUFFIX and not path.name.startswith((".", "_"))


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror or error}") from error
