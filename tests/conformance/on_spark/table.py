"""The table of what Spark does not do as peers do, compared with what was found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).parent / "differs.yaml"


def surprises(section: str, found: Mapping[str, str | None]) -> list[str]:
    """What the table does not say.

    Args:
        found: by name, how something differs; None: it does not.
    """
    listed: dict[str, dict[str, Any]] = yaml.safe_load(TABLE.read_text("utf-8"))[section]
    lines = [f"{name}: is listed, but was not tried" for name in listed if name not in found]
    for name, difference in found.items():
        if name not in listed and difference is not None:
            lines.append(f"{name}: {difference}")
        elif name in listed and difference is None:
            lines.append(f"{name}: is listed, but agrees")
        elif name in listed and listed[name]["expect"] not in (difference or ""):
            lines.append(f"{name}: is listed for another reason than {difference}")
    return lines
