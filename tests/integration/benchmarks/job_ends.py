"""Lifecycle that says when the functions of another one, before it in the job, have ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def calls() -> dict[str, Callable[..., None]]:
    return {"after_task_stop": leave}


def leave(event: Any, lifecycle: Any) -> None:
    options = lifecycle.options
    Path(options["folder"], f"ended-{event['task']}-{options['number']}").touch()
