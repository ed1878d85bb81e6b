"""One run of the stage over one bundle, on a thread of its own.

The task goes on meanwhile: it writes parts of the next bundle and passes on what was made of the
one before. A run is polled, and ends early when nobody wants its result any more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

import msgspec

from onyx.errors import Blocked, OnyxError, Unavailable, contained, describe
from onyx.plugins.protocol import Cursor, SealProgress
from onyx.spark.child.request import Frame, StageRequest, StageRunner, Watch
from onyx.spark.middle.bundles import Bundle, Bundles
from onyx.spark.middle.request import filled
from onyx.spark.middle.results import first_needed
from onyx.storage.file_system import is_full


class StageRun:
    """One run of a stage over a bundle, on a thread of its own. Methods are called by the task's
    thread."""

    def __init__(
        self,
        folder: Bundles,
        bundle: Bundle,
        request: StageRequest,
        upstream: Sequence[str],
        runner: StageRunner,
        timeout_s: float,
        wanted: Callable[[], bool],
        cursors: Callable[[], Sequence[Cursor]] = tuple,
    ) -> None:
        """
        Args:
            cursors: see `PluginContext`.
            request: its frames lack their parts.
            upstream: the task of each frame.
            timeout_s: longest run, in seconds.
            wanted: whether the task is to go on.
        """
        self.bundle = bundle
        self._folder = folder
        self._request = request
        self._upstream = upstream
        self._runner = runner
        self._timeout_s = timeout_s
        self._wanted = wanted
        self._cursors = cursors
        self._error: Exception | None = None
        self._latest: SealProgress | None = None
        self._cancelled = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin, on another thread."""
        name = f"onyx-stage-{self._request.name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def cancel(self) -> None:
        """Have it end soon, and publish nothing."""
        self._cancelled.set()

    def ended(self) -> bool:
        """Whether it has ended.

        Raises:
            UserFunctionError: the stage has failed.
            OnyxError: Spark or the file system has.
        """
        if not self._ended.is_set():
            return False
        if self._error is not None:
            raise self._error
        return True

    def take_progress(self) -> SealProgress | None:
        """How far it is, if that is news."""
        latest, self._latest = self._latest, None
        return latest

    def _run(self) -> None:
        try:
            self._make_result()
        except BaseException as raised:
            error = contained(raised)
            if is_full(error):
                error = Blocked(f"{self._folder.location}: {error}")
            self._error = error if isinstance(error, OnyxError) else Unavailable(describe(error))
        finally:
            self._ended.set()

    def _make_result(self) -> None:
        folder, bundle = self._folder, self.bundle
        with folder.target(bundle) as target:
            files: tuple[tuple[str, int], ...] = ()
            if bundle.parts:
                asked = msgspec.structs.replace(self._request, frames=self._frames())
                watch = Watch(self._is_wanted, self._see)
                self._runner(target.asked(asked), self._timeout_s, watch)
                files = target.settle(asked.master) if self._is_wanted() else ()
            if not self._is_wanted():
                target.drop()
                return
            folder.publish(files, bundle)
        folder.tidy(bundle)
        with contextlib.suppress(Unavailable):  # the next run does it
            folder.drop_results(first_needed(self._cursors()))

    def _frames(self) -> tuple[Frame, ...]:
        """The frames of the request, with the parts of the bundle."""
        parts = self._folder.frames(self.bundle, self._upstream)
        return filled(self._request.frames, parts, f"bundle {self.bundle.number}")

    def _is_wanted(self) -> bool:
        return self._wanted() and not self._cancelled.is_set()

    def _see(self, progress: SealProgress) -> None:
        self._latest = progress
