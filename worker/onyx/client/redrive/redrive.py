"""Dead letters go into a running job again, each once.

For each lot of letters: claim them, hold their segments in the cluster, have them committed, and
write down what became of them. Whatever ends in between is found by whoever does this next, and
ends first (`_finish`): a write is committed once, so nobody asks how far it was.

What fails again is another letter, in another part. The parts are listed once, at the beginning, so
one call never meets what it has brought about itself; and a segment that went in as often as it may
stays, so that a call every hour ends too. How often it went in is known by what it holds: a letter
does not say that its segment came from another one, because a segment has no place for that.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Protocol

import msgspec
from msgspec import field

from onyx.base.seams import Clock
from onyx.client.appender import NotTaken, RequestFailed
from onyx.client.redrive.letters import LetterChoice, LetterPlace, StoredLetter, WrittenLetter
from onyx.client.redrive.marks import Claim, Done, Known, RedriveMarks, packed, unpacked
from onyx.errors import SegmentError, UserError
from onyx.flow.segment import Segment
from onyx.ledger.outcomes import Outcomes
from onyx.requests.request import (
    Answer,
    BatchOfWrite,
    Commit,
    HeldRequest,
    Status,
    WriterOfBatch,
)

LOT_LETTERS = 2_000
LOT_BYTES = 1_000_000
"""Letters of one claim, as they are written. Their segments are one request."""
ROUNDS_MAX = 3
"""How often a segment goes in, if nobody says."""
KINDS_MAX = 1_000
"""Errors that are counted apart."""
OTHERS = "others"
BEFORE = "redriven before"
TOO_OFTEN = "redriven too often (--tries-max)"
CUT = "not whole in their letters"
NO_LETTERS = "no letters"
OUTCOMES = ("failed", "dead_letters", "exceptions", "unmatched", "given_up")


class TooLate(UserError):
    """A claim was cut off so long ago that nobody knows whether it was taken."""


class Sender(Protocol):
    """What takes segments (`client.appender.Appender`)."""

    def hold(self, segments: list[Segment], held: HeldRequest, timeout_s: float) -> Answer:
        """Keep segments until their batch is committed."""
        ...

    def commit(self, commit: Commit, ack: str, timeout_s: float) -> Answer:
        """Have a batch taken, once."""
        ...


class Target(msgspec.Struct, frozen=True):
    """Where segments go."""

    job: str
    input: str
    versions: frozenset[str] = frozenset()
    """The job and those that it has upgraded."""
    ack: str = "ack"
    timeout_s: float = 30.0
    accepts: Callable[[Segment], str] = lambda _: ""
    """Why the input would refuse a segment; empty if it would not."""


class Limits(msgspec.Struct, frozen=True):
    """How much is redriven."""

    first: int | None = None
    """So many letters at most."""
    rounds_max: int = ROUNDS_MAX
    again: bool = False
    """Letters that went in before go in once more."""


class RedriveSummary(msgspec.Struct):
    """What was done, or would be."""

    letters: int = 0
    """Rows that were looked at."""
    parts: int = 0
    redriven: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Letters that went in, by their errors."""
    examples: dict[str, str] = field(default_factory=dict)
    """A message of each."""
    left: Counter[str] = field(default_factory=Counter)
    """Letters that did not go in, by why."""
    why_cut: str = ""
    """About the first of those whose segment cannot be made again, or would be refused."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """What became of them, as far as they did not simply go on."""
    first_error: str = ""
    finished: int = 0
    """Letters of claims that somebody has left without an end."""
    finished_by: list[str] = field(default_factory=list)
    open: int = 0
    """Letters of such claims that cannot be finished here."""
    open_why: str = ""

    def count(self, letter: WrittenLetter) -> None:
        """A letter goes in."""
        kind = letter.kind[:300]
        if kind not in self.errors and len(self.errors) >= KINDS_MAX:
            kind = OTHERS
        self.errors[kind] += 1
        self.redriven += 1
        self.examples.setdefault(kind, letter.message[:300])

    def leave(self, why: str) -> None:
        """A letter stays."""
        if why not in self.left and len(self.left) >= KINDS_MAX:
            why = OTHERS
        self.left[why] += 1


class Redrive:
    """One call: letters of a place, chosen, into one input."""

    def __init__(
        self,
        place: LetterPlace,
        marks: RedriveMarks,
        choice: LetterChoice,
        limits: Limits,
        target: Target,
        clock: Clock,
        by: str,
    ) -> None:
        self._place = place
        self._marks = marks
        self._choice = choice
        self._limits = limits
        self._target = target
        self._clock = clock
        self._by = by
        self._known = Known()
        self._next = 0
        self.summary = RedriveSummary()

    def preview(self) -> RedriveSummary:
        """What `run` would do now."""
        with closing(self._place):
            self._read_marks(None)
            for lot in self._lots():
                fresh = self._fresh(lot)
                self._known.add(self._claim(fresh))
                for each, _ in fresh:
                    self.summary.count(each.letter)
        return self.summary

    def run(
        self,
        senders: Callable[[str], Sender],
        progress: Callable[[RedriveSummary], None] = lambda _: None,
    ) -> RedriveSummary:
        """Redrive; `senders` has the sender to an input. Raises what that and the stores do.
        Nothing is lost or doubled then: whoever calls this next goes on."""
        with closing(self._place):
            self._read_marks(senders)
            for lot in self._lots():
                self._redrive(senders, lot)
                progress(self.summary)
        return self.summary

    # --- marks of before ------------------------------------------------------------------------

    def _read_marks(self, senders: Callable[[str], Sender] | None) -> None:
        again = self._limits.again
        for number, claim, is_done in self._marks.claims():
            self._next = number + 1
            if not is_done and claim.task == self._choice.task:
                is_done = not self._finish(senders, number, claim)
            if not is_done or not again:
                self._known.add(claim)

    def _finish(self, senders: Callable[[str], Sender] | None, number: int, claim: Claim) -> bool:
        """A claim without an end, of somebody who has died or is at it now, goes in; False: it
        cannot."""
        summary = self.summary
        if claim.job not in self._target.versions:
            summary.open += claim.count
            summary.open_why = f"they were to go into job {claim.job}"
            return False
        if senders is not None:
            try:
                outcomes = self._finished(senders(claim.input), claim)
            except TooLate as error:
                self._end(number, Outcomes(first_error=str(error)), taken=False)
                summary.open += claim.count
                summary.open_why = str(error)
                return False
            self._end(number, outcomes)
        summary.finished += claim.count
        summary.finished_by = sorted({*summary.finished_by, claim.by})[:10]
        return True

    def _finished(self, sender: Sender, claim: Claim) -> Outcomes:
        """What became of it. Raises TooLate: nobody knows whether it was taken."""
        try:
            return self._commit(sender, claim)
        except NotTaken as error:
            if error.answer.status is not Status.INVALID:
                raise
        # It was not held yet, or is not any more.
        self._hold(sender, claim, list(self._segments(claim)))
        try:
            return self._commit(sender, claim)
        except NotTaken as error:
            if error.answer.status is not Status.INVALID:
                raise
            raise TooLate(str(error)) from error

    def _segments(self, claim: Claim) -> Iterator[Segment]:
        """The segments of a claim, read again. Raises UserError: its letters are not there."""
        prints = iter(unpacked(claim.prints))
        for part, rows in claim.rows:
            wanted = dict(zip(rows, prints, strict=False))
            found: dict[int, Segment] = {}
            with closing(self._place.letters(part)) as letters:
                for each in letters:
                    if each is not None and wanted.get(each.row) == each.print:
                        found[each.row] = each.segment()
                        if len(found) == len(wanted):
                            break
            if len(found) < len(wanted):
                what = f"{claim.by} wanted {len(rows):,} of its letters to go into job {claim.job}"
                if self._place.is_fixed:
                    raise UserError(f"{part} has changed since {what}: put the file back as it was")
                raise TooLate(f"letters of {part} are gone since {what}")
            yield from (found[row] for row in rows)

    # --- letters ----------------------------------------------------------------------------------

    def _lots(self) -> Iterator[list[StoredLetter]]:
        """The letters that are wanted, some at a time."""
        lot: list[StoredLetter] = []
        size_bytes = 0
        for each in self._wanted():
            if lot and (len(lot) >= LOT_LETTERS or size_bytes + each.size_bytes > LOT_BYTES):
                yield lot
                lot, size_bytes = [], 0
            if self._full:
                return
            lot.append(each)
            size_bytes += each.size_bytes
        if lot:
            yield lot

    @property
    def _full(self) -> bool:
        first = self._limits.first
        return first is not None and self.summary.redriven >= first

    def _wanted(self) -> Iterator[StoredLetter]:
        summary = self.summary
        for part in self._place.parts():
            summary.parts += 1
            for each in self._place.letters(part):
                summary.letters += 1
                why = NO_LETTERS if each is None else self._choice.why_not(each.letter)
                if why:
                    summary.leave(why)
                elif each is not None:
                    yield each

    def _fresh(self, lot: Sequence[StoredLetter]) -> list[tuple[StoredLetter, int]]:
        """The letters of a lot that have not gone in, each with how often one like it has."""
        summary, limits = self.summary, self._limits
        keys = [each.key for each in lot]
        rounds = self._known.rounds([each.print for each in lot])
        seen: set[int] = set()
        fresh: list[tuple[StoredLetter, int]] = []
        for each, key, is_known, before in zip(
            lot, keys, self._known.has(keys), rounds, strict=True
        ):
            if limits.first is not None and summary.redriven + len(fresh) >= limits.first:
                break
            if is_known or key in seen:
                summary.leave(BEFORE)
            elif before >= limits.rounds_max:
                summary.leave(TOO_OFTEN)
            elif wrong := self._wrong(each):
                summary.leave(CUT)
                summary.why_cut = summary.why_cut or f"{each.part}, row {each.row}: {wrong}"
            else:
                seen.add(key)
                fresh.append((each, before))
        return fresh

    def _wrong(self, stored: StoredLetter) -> str:
        try:
            return self._target.accepts(stored.segment())
        except SegmentError as error:
            return str(error)

    # --- one lot ----------------------------------------------------------------------------------

    def _redrive(self, senders: Callable[[str], Sender], lot: Sequence[StoredLetter]) -> None:
        fresh = self._fresh(lot)
        claim = self._claim(fresh)
        while fresh and not self._marks.make(self._next, claim):
            # Somebody else was first. Letters of this lot may be theirs.
            theirs = self._marks.claim(self._next)
            if theirs is not None:
                self._known.add(theirs)
            self._next += 1
            fresh = self._fresh([each for each, _ in fresh])
            claim = self._claim(fresh)
        if not fresh:
            return
        number, sender = self._next, senders(claim.input)
        self._next += 1
        self._known.add(claim)
        for each, _ in fresh:
            self.summary.count(each.letter)
        self._hold(sender, claim, [each.segment() for each, _ in fresh])
        self._end(number, self._commit(sender, claim))

    def _claim(self, fresh: Sequence[tuple[StoredLetter, int]]) -> Claim:
        rows: dict[str, list[int]] = {}
        for each, _ in fresh:
            rows.setdefault(each.part, []).append(each.row)
        return Claim(
            uuid.uuid4().hex,
            self._target.job,
            self._target.input,
            self._choice.task,
            self._by,
            self._clock.wall_ms(),
            tuple((part, tuple(those)) for part, those in rows.items()),
            packed([each.key for each, _ in fresh]),
            packed([each.print for each, _ in fresh]),
            bytes(min(before + 1, 255) for _, before in fresh),
        )

    def _hold(self, sender: Sender, claim: Claim, segments: list[Segment]) -> None:
        held = HeldRequest(_batch(claim), claim.write, 0)
        sender.hold(segments, held, self._target.timeout_s)

    def _commit(self, sender: Sender, claim: Claim) -> Outcomes:
        commit = Commit(_batch(claim), (WriterOfBatch(claim.write, 1),))
        try:
            return sender.commit(commit, self._target.ack, self._target.timeout_s).outcomes
        except RequestFailed as failed:  # it was taken, and segments have failed
            return failed.answer.outcomes

    def _end(self, number: int, outcomes: Outcomes, taken: bool = True) -> None:
        counts = {name: getattr(outcomes, name) for name in OUTCOMES if getattr(outcomes, name)}
        self.summary.outcomes.update(counts)
        self.summary.first_error = self.summary.first_error or outcomes.first_error
        now_ms = self._clock.wall_ms()
        self._marks.end(number, Done(self._by, now_ms, taken, counts, outcomes.first_error))


def _batch(claim: Claim) -> BatchOfWrite:
    return BatchOfWrite(f"redrive/{claim.write}", 0)
