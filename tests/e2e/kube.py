"""kubectl and helm for one namespace, as a user has them; every command and wait has a limit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from release.images import BY_VARIABLE
from tests.cluster.binaries import program

T = TypeVar("T")

TOOLS = Path(__file__).parent / "tools"
COMMAND_TIMEOUT_S = 120.0
WAIT_S = 240.0
"""Longest wait for what a cluster does in seconds when it has the machine for itself."""
_POLL_S = 0.5
_LOG_LINES = 60


class CommandError(Exception):
    """A command failed; has what it wrote."""


def tool(name: str) -> str:
    """kubectl or helm: that of the path, else the one that `make cluster` has built."""
    return shutil.which(name) or str(program(name))


def run(command: Sequence[str], given: str = "", timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Run a command to its end; its output.

    Raises:
        CommandError: it failed, or was not done after `timeout_s`.
    """
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"not done after {timeout_s:.0f} s: {' '.join(command)}") from error
    if done.returncode != 0:
        raise CommandError(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def until(condition: Callable[[], T], what: str, timeout_s: float = WAIT_S) -> T:
    """Poll until something holds; its value. A command that fails meanwhile is asked again."""
    end_s = time.monotonic() + timeout_s
    found: T | str = "nothing"
    while time.monotonic() < end_s:
        try:
            found = condition()
        except CommandError as error:
            found = str(error)
        else:
            if found:
                return found
        time.sleep(_POLL_S)
    raise AssertionError(f"after {timeout_s:.0f} s still not: {what}; last seen: {found}")


class Kube:
    """One namespace of the cluster that KUBECONFIG names."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def kubectl(
        self, *arguments: str, given: str = "", timeout_s: float = COMMAND_TIMEOUT_S
    ) -> str:
        return run([tool("kubectl"), "--namespace", self.namespace, *arguments], given, timeout_s)

    def helm(self, *arguments: str, timeout_s: float = 2 * WAIT_S) -> str:
        return run([tool("helm"), "--namespace", self.namespace, *arguments], "", timeout_s)

    def apply(self, manifest: Mapping[str, Any] | str) -> None:
        given = manifest if isinstance(manifest, str) else json.dumps(manifest)
        self.kubectl("apply", "--filename", "-", given=given)

    def get(self, kind: str, name: str) -> Any:
        return json.loads(self.kubectl("get", kind, name, "--output", "json"))

    def list(self, kind: str, selector: str = "") -> list[Any]:
        found = self.kubectl("get", kind, "--selector", selector, "--output", "json")
        items: list[Any] = json.loads(found)["items"]
        return items

    def phase(self, job: str) -> str:
        """Phase of an OnyxJob; empty when the operator has not seen it."""
        return str(self.get("oj", job).get("status", {}).get("phase", ""))

    def delete_at_once(self, kind: str, name: str) -> None:
        """As a lost machine would: no signal to leave, no grace period."""
        self.kubectl("delete", kind, name, "--grace-period=0", "--force")

    def python(self, pod: str, program: str, *arguments: str) -> str:
        """Run Python in a worker's container; its output."""
        return self.kubectl("exec", pod, "--", "python", "-c", program, *arguments)

    def tool(self, pod: str, name: str, *arguments: str) -> str:
        """Run a program of `tools` in a worker's container; its output."""
        return self.python(pod, (TOOLS / f"{name}.py").read_text("utf-8"), *arguments)

    def wait(self, thing: str, condition: str, timeout_s: float = WAIT_S) -> None:
        """`kubectl wait`, for a thing that exists."""
        self.kubectl(
            "wait",
            thing,
            f"--for=condition={condition}",
            f"--timeout={timeout_s:.0f}s",
            timeout_s=timeout_s + COMMAND_TIMEOUT_S,
        )

    def describe_everything(self) -> str:
        """What one looks at after a failure."""
        commands = [
            ["get", "oc,oj,pods,pvc", "--output", "wide"],
            ["get", "oc,oj", "--output", "yaml"],
            ["get", "events", "--sort-by=.lastTimestamp"],
            *(
                ["logs", each["metadata"]["name"], f"--tail={_LOG_LINES}", *previous]
                for each in self.list("pods")
                for previous in ([], ["--previous"])
            ),
        ]
        return "\n".join(self._told(each) for each in commands)

    def _told(self, command: Sequence[str]) -> str:
        try:
            return f"--- kubectl {' '.join(command)}\n{self.kubectl(*command)}"
        except CommandError as error:
            return "" if "--previous" in command else f"--- {error}"


def image(variable: str) -> str:
    """An image by the variable that `make images` uses for it."""
    return BY_VARIABLE[variable].name(os.environ)
