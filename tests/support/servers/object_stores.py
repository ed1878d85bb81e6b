"""Object stores for tests: the small server of this process, whose faults can be chosen, and a real
one if it has been built, which `python -m tests.support.servers.object_stores` does.

The real one is the Versity gateway, which keeps objects in files: it answers conditional writes as
Amazon's store does, and builds in a minute or two. Rejected: MinIO, which takes ten minutes.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.cluster import binaries
from tests.support.patience import WAIT_S
from tests.support.servers.ports import free_port
from tests.support.servers.s3_server import S3Server

from onyx.storage.objects.bucket import Bucket
from onyx.storage.objects.connection import connect

_HEALTH = "/health"


class Gateway:
    """A running gateway, which keeps its data in a folder."""

    def __init__(self, folder: Path) -> None:
        """Skips the test when the gateway has not been built."""
        program = binaries.program("versitygw")
        if not program.exists():
            pytest.skip("the object store has not been built: make objects")
        address = f"127.0.0.1:{free_port()}"
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ACCESS_KEY_ID": "access-key",
            "AWS_SECRET_ACCESS_KEY": "secret-key",
            "AWS_REGION": "us-east-1",
        }
        (data := folder / "data").mkdir()
        (metadata := folder / "metadata").mkdir()
        options = ["--quiet", "--health", _HEALTH, "--access", "access-key"]
        options += ["--secret", "secret-key", "posix", "--sidecar", str(metadata)]
        self._process = subprocess.Popen(
            [program, "--port", address, *options, str(data)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await_start(f"http://{address}{_HEALTH}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _await_start(self, url: str) -> None:
        ends_s = time.monotonic() + WAIT_S
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

    def __init__(self, server: S3Server | Gateway) -> None:
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
    binaries.build(["versitygw"])
