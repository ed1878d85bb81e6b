"""Which trees begin with a request, so that what becomes of their segments is its answer."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from onyx.base.runs import Numbers
from onyx.flow.batch import Mask


class Answering(Protocol):
    """What a task asks about the roots of its batches."""

    @property
    def any(self) -> bool:
        """Whether any tree of the job is one of a request."""
        ...

    def among(self, roots: Numbers) -> Mask:
        """Which of these roots are of requests."""
        ...

    def at_once(self, root: int) -> bool:
        """Whether the first failure of a segment is its last (`onFailure: answer`)."""
        ...


class Nobody:
    """Nobody has sent a request: what fails ends the job."""

    any = False

    def among(self, roots: Numbers) -> Mask:
        """None of them."""
        return np.zeros(len(roots), np.bool_)

    def at_once(self, root: int) -> bool:
        """Never."""
        return False


NOBODY = Nobody()
