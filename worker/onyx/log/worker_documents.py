"""Paths of the documents about workers that are stored beside the log."""

from __future__ import annotations

DEATHS = "deaths"
"""The folder of the reports of supervisors how their processes have died."""


def deaths(host: str) -> str:
    """The report of a machine, or pod."""
    return f"{DEATHS}/{host}"
