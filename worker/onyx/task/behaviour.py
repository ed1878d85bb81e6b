"""What the machine asks about a task, by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onyx.program.failure import Failure
from onyx.program.lifecycles import Verdict
from onyx.program.phases import Phase
from onyx.task.messages import Message
from onyx.task.table import Answer


class Behaviour(msgspec.Struct, frozen=True):
    """What the machine asks about a task, by its kind. Functions get the task."""

    run: Mapping[Phase, Callable[[Any], Answer]]
    """The phases of its table."""
    receive: Callable[[Any, Message], None]
    """Take a message that is not Stop."""
    more_waits: Callable[[Any], bool]
    """Whether another whole batch waits for it."""
    verdict: Callable[[Any, Failure], Verdict]
    """What to do about a failure."""
    closers: Callable[[Any, str], list[Callable[[], object]]]
    """What is to be done when it leaves, for this reason."""
