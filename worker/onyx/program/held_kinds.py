"""What a task with state holds, by its kind, for code that knows which kind it is."""

from __future__ import annotations

from onyx.program.keyed.states import KeyedStates
from onyx.program.processing.states import ProcessorStates
from onyx.program.streams.state import JoinedStreams
from onyx.windows.stateful import Stateful
from onyx.windows.task_windows import TaskWindows


class HeldKinds:
    """For who keeps the state of a task."""

    held: Stateful

    @property
    def windows(self) -> TaskWindows:
        """What a task with windows holds."""
        assert isinstance(self.held, TaskWindows), "asked of a task with windows"
        return self.held

    @property
    def keyed(self) -> KeyedStates:
        """What a task whose function has state holds."""
        assert isinstance(self.held, KeyedStates), "asked of a task with state by key"
        return self.held

    @property
    def processing(self) -> ProcessorStates:
        """What a task with a processor holds."""
        assert isinstance(self.held, ProcessorStates), "asked of a task with a processor"
        return self.held

    @property
    def joined(self) -> JoinedStreams:
        """What a join of two streams holds."""
        assert isinstance(self.held, JoinedStreams), "asked of a join"
        return self.held
