"""URLs and patterns of keys: nothing of a credential is repeated, patterns are those of files."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import UserError
from onyx.storage.files import literal_prefix, matches
from onyx.storage.objects.urls import ObjectUrl, is_url, parse_url


@pytest.mark.parametrize(
    ("url", "bucket", "key"),
    [
        ("s3://bucket/a/b.csv", "bucket", "a/b.csv"),
        ("S3://my.bucket-1/data/*.csv", "my.bucket-1", "data/*.csv"),
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/dir/", "bucket", "dir"),
        ("s3://bucket/a b/ü?.csv", "bucket", "a b/ü?.csv"),
    ],
)
def test_urls_name_a_bucket_and_a_key(url: str, bucket: str, key: str) -> None:
    assert is_url(url)
    assert parse_url(url) == ObjectUrl(bucket, key)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAEXAMPLE:verysecret@bucket/a",
        "s3://verysecret@bucket/a",
        "s3://bucket/a?X-Amz-Credential=AKIAEXAMPLE&X-Amz-Signature=verysecret",
        "s3://bucket/a?AWSAccessKeyId=AKIAEXAMPLE&Signature=verysecret",
        "s3://bucket/a?access_key=AKIAEXAMPLE&secret_key=verysecret",
        "https://AKIAEXAMPLE:verysecret@storage.example/bucket/a",
    ],
)
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UserError, match="credentials in it; take them out of the job") as caught:
        parse_url(url)
    assert "verysecret" not in str(caught.value)
    assert "AKIAEXAMPLE" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("gs://bucket/a", "begin with s3://"),
        ("s3a://bucket/a", "write s3://"),
        ("http://host/a", "begin with s3://"),
        ("s3://", "names no bucket"),
        ("s3:///a", "names no bucket"),
        ("s3://host:9000/a", "names no bucket"),
    ],
)
def test_other_urls_are_refused(url: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        parse_url(url)


def test_paths_are_no_urls() -> None:
    assert not any(map(is_url, ["data/a.csv", "/data/*.csv", "C:/a", "a://b".replace("://", ":/")]))


FILES = (
    "a.csv", "b.csv", "b.csv.gz", ".hidden.csv", "a/c.csv", "a/b/d.csv", "a/.staging/e.csv",
    "a/b/.f.csv", "a[1].csv", "a-1.csv", "-.csv", "a/b/deep/g.csv", "!.csv",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


PARTS = st.sampled_from(
    ["*", "**", "?.csv", "*.csv", "[ab].csv", "[!a].csv", "a", "b", ".*", ".staging", "a[[]1].csv",
     "[a-b]*", "[]-]*", "*[.]csv", "[!]-]*", "a*", "*b*", "[", "[!", "[a"]
)  # fmt: skip


@given(st.lists(PARTS, min_size=1, max_size=3).map("/".join))
def test_patterns_choose_what_they_choose_among_files(folder: Path, pattern: str) -> None:
    found = {
        path
        for path in glob.glob(pattern, root_dir=folder, recursive=True)
        if (folder / path).is_file()
    }
    chosen = {name for name in FILES if matches(pattern, name)}
    assert chosen == found
    assert all(name.startswith(literal_prefix(pattern)) for name in chosen)
