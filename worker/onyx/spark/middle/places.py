"""Where bundles, their parts and their results lie: what every such place can do.

The rules are those of `bundles`: what appears under a number is final, and the first that appears
counts. A place may raise OSError, or what the store of objects behind it raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from onyx.plugins.parts.stores import PartStore
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import StageRequest
from onyx.spark.middle.bundles import Bundle, Result, Waiting


class Bundles(Protocol):
    """The bundles of one task of one job."""

    @property
    def where(self) -> object:
        """For messages."""
        ...

    @property
    def poll_s(self) -> float:
        """How often to look for what others have made."""
        ...

    def store(self, context: PluginContext) -> PartStore:
        """Where a peer writes parts."""
        ...

    def bundle(self, number: int) -> Bundle | None:
        """A bundle; None while it is not made. Raises UserError if it is damaged."""
        ...

    def waiting(self, first: int = 1) -> Waiting:
        """What the next bundle would have. Bundles before `first` have results, and their parts are
        gone."""
        ...

    def make(self, bundle: Bundle) -> Bundle:
        """Make a bundle, unless there is one of this number; the one that stands then. All before
        it stand, and none of them is the last."""
        ...

    def frames(self, bundle: Bundle, upstream: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Paths or URLs of the parts of a bundle by the task that they come from."""
        ...

    def rows_in(self, part: str) -> int:
        """Rows of a part."""
        ...

    def tidy(self, bundle: Bundle) -> None:
        """Remove the parts of a bundle whose result stands, and what other runs have left: they can
        publish nothing any more."""
        ...

    def asked(self, request: StageRequest, bundle: Bundle) -> AbstractContextManager[StageRequest]:
        """The request with a place for a result of the bundle, that no other run has. What is there
        and was not taken may be gone afterwards."""
        ...

    def take(self, asked: StageRequest, bundle: Bundle) -> None:
        """Make what a run has made the result of the bundle, unless that has one.

        Raises UserFunctionError: it cannot be seen from here.
        """
        ...

    def take_nothing(self, bundle: Bundle) -> None:
        """Takes what `take` does, with a result without rows."""
        ...

    def result(self, number: int) -> Result | None:
        """What the stage made of a bundle; None while that does not stand. Raises UserError if it
        is damaged."""
        ...

    def file(self, number: int, name: str) -> str:
        """The path or URL of a file of a result."""
        ...

    def has_file(self, number: int, name: str) -> bool:
        """Whether it is still there."""
        ...

    def drop_results(self, before: int) -> None:
        """Remove the rows of the results of bundles before this one, which nobody reads again.
        That they stood is still known, so that no stage runs over these bundles again."""
        ...
