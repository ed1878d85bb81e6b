"""Processors: tasks that are objects, called again until they say that they are done.

What a user's module imports. The engine's side of it is `onyx.program.processing`.
"""

from onyx.processors.building import FlatMapper, Traverser, traverse, traverse_items
from onyx.processors.context import Context
from onyx.processors.inbox import Inbox
from onyx.processors.outbox import Outbox
from onyx.processors.processor import Processor

__all__ = [
    "Context",
    "FlatMapper",
    "Inbox",
    "Outbox",
    "Processor",
    "Traverser",
    "traverse",
    "traverse_items",
]
