"""How large the files of a pattern are, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onyx.storage.files import InputFiles, ObjectFiles
from onyx.storage.objects.bucket import ListedObject


class Listing:
    """A bucket that answers nothing but a list: a request for each object would take too long."""

    def list(self, prefix: str) -> Iterator[ListedObject]:
        keys = {"in/": 0, "in/a.jsonl": 5, "in/b.jsonl": 7, "in/c.csv": 9}
        return (ListedObject(key, size, "v") for key, size in keys.items() if prefix in key)


def test_objects_have_the_sizes_of_their_list() -> None:
    files = ObjectFiles(lambda _: Listing())  # type: ignore[arg-type, return-value]
    assert files.sizes_bytes("s3://shop/in/*.jsonl") == {
        "s3://shop/in/a.jsonl": 5,
        "s3://shop/in/b.jsonl": 7,
    }


def test_files_have_those_of_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("12345")
    (tmp_path / "folder.jsonl").mkdir()
    found = InputFiles().sizes_bytes(f"{tmp_path}/*.jsonl")
    assert found == {str(tmp_path / "a.jsonl"): 5}
