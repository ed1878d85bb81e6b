"""Entries as another program might have written them: a name and arguments, perhaps wrong ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from onyx.codec.entries import FORMAT_VERSION, decode_entry
from onyx.ids import NO_POSITION
from onyx.replica.command import Command


def raw_entry(fn: str, args: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of an entry of a client, with whatever JSON can say."""
    return json.dumps({"v": FORMAT_VERSION, "fn": fn, "args": args or {}}).encode()


def raw_command(fn: str, args: Mapping[str, Any] | None = None) -> Command:
    """What a reader makes of it."""
    return decode_entry(NO_POSITION, raw_entry(fn, args)).command
