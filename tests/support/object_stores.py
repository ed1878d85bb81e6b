"""Object stores for tests: the small server of this process, and MinIO if it has been built, which
`python -m tests.support.object_stores` does."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.cluster import binaries
from tests.support.s3_server import S3Server

from onyx.objects.bucket import Bucket
from onyx.objects.connection import connect

START_TIMEOUT_S = 60.0


class Minio:
    """A running MinIO, which keeps its data in a folder."""

    def __init__(self, folder: Path) -> None:
        """Skips the test when MinIO has not been built."""
        if not binaries.program("minio").exists():
            pytest.skip("MinIO has not been built: make objects")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ACCESS_KEY_ID": "minio-access-key",
            "AWS_SECRET_ACCESS_KEY": "minio-secret-key",
            "AWS_REGION": "us-east-1",
        }
        self._process = subprocess.Popen(
            [binaries.program("minio"), "server", "--quiet", "--address", address, folder],
            env={
                **os.environ,
                "MINIO_ROOT_USER": self.environment["AWS_ACCESS_KEY_ID"],
                "MINIO_ROOT_PASSWORD": self.environment["AWS_SECRET_ACCESS_KEY"],
                "MINIO_BROWSER": "off",
                "HOME": str(folder),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await_start(f"http://{address}/minio/health/ready")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _await_start(self, url: str) -> None:
        ends_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with urlopen(url, timeout=1):
                    return
            except OSError:
                if time.monotonic() > ends_s or self._process.poll() is not None:
                    self.close()
                    raise
                time.sleep(0.1)


class ObjectStore:
    """A new bucket of a server, for one test, whose environment leads to that server."""

    def __init__(self, server: S3Server | Minio) -> None:
        self.server = server
        self.environment: Mapping[str, str] = server.environment
        self.name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client = connect()
        self.client.create_bucket(Bucket=self.name)
        self.bucket = Bucket(self.name, self.client)

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, data: bytes | str) -> str:
        """Write an object; its URL."""
        self.bucket.put(key, data.encode() if isinstance(data, str) else data)
        return f"{self.url}/{key}"

    def get(self, key: str) -> bytes:
        found = self.bucket.get(key)
        assert found is not None, f"{key} is not there, only {self.keys()}"
        return found.data

    def keys(self, prefix: str = "") -> list[str]:
        return [found.key for found in self.bucket.list(prefix)]


if __name__ == "__main__":
    binaries.build(["minio"])
