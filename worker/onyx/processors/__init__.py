"""Processors: tasks that are objects, called again until they say that they are done.

What a user's module imports. The engine's side of it is `onyx.operators.processor`.
"""

from onyx.processors.processor import (
    Context,
    FlatMapper,
    Inbox,
    Outbox,
    Processor,
    Traverser,
    traverse,
    traverse_items,
)

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
