"""What inputs and readers have in addition if only the owner of a partition may read it, or if
their source wants to know what became of what it gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from onyx.ids import AllocationVersion

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onyx.ledger.returns import Parts


@runtime_checkable
class AckedReader(Protocol):
    """The method that a reader has in addition if its source wants to know what is processed."""

    def acked(self, positions: NDArray[np.uint64]) -> None:
        """The trees of these positions, which rise, have become complete; each is named once, but
        not those that `cursor` has passed. Called between two reads."""
        ...

    def returned(self, position: int, parts: Parts) -> None:
        """What functions give back for the tree of a position, and what is said of it
        (`ledger.outcomes`), before it is complete."""
        ...

    def given_up(self, positions: NDArray[np.uint64]) -> None:
        """These positions, which rise, have failed or were lost, and are not read again."""
        ...

    def settled(self, position: int) -> int:
        """How far the frontier may go, of a position that it could go to: not beyond what has
        failed until that is durable, or the next owner would take it for processed."""
        ...

    def sent_again(self, positions: NDArray[np.uint64]) -> None:
        """These positions, which rise, are sent again: whoever waits for them still does."""
        ...

    def awaited(self, position: int) -> bool:
        """Whether somebody waits for something all of which is before this position, each time
        once: outputs then make durable what they hold."""
        ...


class Unanswered:
    """The part of an `AckedReader` whose source gives no answers."""

    def returned(self, position: int, parts: Parts) -> None:
        """The source takes no values."""

    def given_up(self, positions: NDArray[np.uint64]) -> None:
        """The source does not hear of them."""

    def settled(self, position: int) -> int:
        """No limit: nothing is to be durable before."""
        return position

    def sent_again(self, positions: NDArray[np.uint64]) -> None:
        """No request waits for them."""

    def awaited(self, position: int) -> bool:
        """No request waits."""
        return False


@runtime_checkable
class DrainingReader(Protocol):
    """The method that a reader has in addition if its source can be closed."""

    def drain(self) -> int | None:
        """Take nothing new any more. Returns the position behind the last one that was taken and
        has to be processed before the job ends; None while that is not known: ask again."""
        ...


@runtime_checkable
class OwningInput(Protocol):
    """The method that an input has in addition if only the owner of a partition may read it."""

    def allocate(self, version: AllocationVersion) -> None:
        """Partitions that are opened from now on belong to this peer in this allocation version of
        the job."""
        ...
