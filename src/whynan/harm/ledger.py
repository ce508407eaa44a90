"""Decides what counts as harm: an effect, never the mere sight of a non-finite value.

Whoever looks at the program (the guard, the recorder) tells what happened, in the words of training,
and what was non-finite there. The ledger alone knows whether it matters, now or when the program ends.
`harm/table.py` shows every rule as a row of events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whynan.model import Evidence, Sink

SHOWS_NONFINITE = re.compile(r"(?<![\w.])[-+]?(?:nan|inf|infinity)s?(?!\w)", re.IGNORECASE)
MAX_READ = 20  # values read since the last step that are worth remembering
MAX_SILENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """Something non-finite, or finite and wrong, that was seen at one place."""

    sink: Sink
    subject: str
    step: int = 0
    value: float | None = None
    wrong: bool = False  # finite, but an overflow was absorbed into it
    proof: Any = None  # what the one who saw it needs to explain it
    places: Any = None  # of a value that was read: where, in the program's frames
    is_kept: bool = False  # in a number of the program's, which it showed after that step

    @property
    def is_explained(self) -> bool:
        """Else the proof holds frames of the program and what is in them, for as long as it is needed."""
        return isinstance(getattr(self.proof, "evidence", self.proof), Evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """What was seen and did no harm; the closing line of a run may count it."""

    what: str
    step: int


@dataclass(slots=True)
class _Search:
    """Trainings that a program starts in order to reject most of them."""

    begun: int = 0
    lost: int = 0
    first: Sign | None = None  # harm of them
    is_lost: bool = False  # the newest
    ends_so: bool = False


@dataclass(slots=True)
class Ledger:
    """Each method is an event; what it returns counts as harm from now on.

    >>> ledger = Ledger()
    >>> ledger.backward_begins([Sign(sink="loss", subject="loss")])
    >>> [sign.subject for sign in ledger.step_begins([Sign(sink="gradient", subject="gradient")])]
    ['loss']
    """

    finite_from: int | None = None  # from this step on a loss must be finite, harm or not
    silent: list[Silent] = field(default_factory=list)
    _losses: list[Sign] = field(default_factory=list)
    _spoilt: bool = False  # the last backward pass left non-finite gradients behind
    _reads: dict[Hashable, Sign] = field(default_factory=dict)
    # By place, while nothing finite comes from it.
    _runs: dict[Hashable, Sign] = field(default_factory=dict)
    _read_before: list[Sign] = field(default_factory=list)  # NaN, in earlier steps
    _last_words: dict[Hashable, Sign] = field(default_factory=dict)
    searches: dict[Hashable, _Search] = field(default_factory=dict)
    _has_stepped: bool = False
    _asked: bool = False

    @property
    def waits(self) -> bool:
        """Whether a loss is open, until it is known what is done with its gradients."""
        return bool(self._losses)

    @property
    def losses(self) -> Sequence[Sign]:
        """Those that are open."""
        return self._losses

    # ---- training -------------------------------------------------------------------------

    def backward_begins(self, losses: Sequence[Sign]) -> None:
        """Of a loss. Whether it matters depends on what is done with its gradients."""
        self._losses += losses
        self._spoilt = False
        for key in [k for k, s in self._last_words.items() if s.sink == "output"]:
            del self._last_words[key]  # a loss is made of it: the loss decides

    def backward_ends(self, *, spoilt: bool) -> None:
        """Whether it left non-finite gradients behind, as far as that was looked at."""
        self._spoilt = self._spoilt or spoilt

    def gradients_dropped(self) -> None:
        """Nobody will step with them."""
        self._let_go("a loss was non-finite and its gradients were dropped")

    def step_begins(self, gradients: Sequence[Sign] = (), norms: Sequence[Sign] = ()) -> list[Sign]:
        """An update is about to be made with these gradients, scaled by these clipping norms."""
        wrong = [sign for sign in (*self._losses, *gradients) if sign.wrong]
        bad = [sign for sign in gradients if not sign.wrong]
        if bad:
            counted = [s for s in self._losses if not s.wrong] or bad
        else:
            counted = wrong[:1] or self._demanded() or list(norms[:1])
        if not bad:
            self._losses = [s for s in self._losses if not s.wrong]
            self._let_go("a loss was non-finite with finite gradients")
        self._losses = []
        return counted

    def step_ends(self, state: Sequence[Sign] = ()) -> list[Sign]:
        """The update is made; `state` is what became non-finite by it."""
        self._has_stepped = True
        self._losses.clear()  # of a line search that has rejected them
        self._forget_words()
        return list(state)

    def step_left_out(self) -> None:
        """GradScaler did not take it, or the batch is dropped: as it should be."""
        self._losses.clear()

    def scale_collapsed(self, sign: Sign) -> list[Sign]:
        """Step after step was left out, and the scale is worn down."""
        return [sign]

    def state_spoilt(self, state: Sequence[Sign]) -> list[Sign]:
        """A parameter, buffer, average or rate became non-finite outside of an optimizer's step."""
        losses, self._losses = [s for s in self._losses if not s.wrong], []
        return losses or list(state)

    def updated_by_hand(self, state: Sequence[Sign] = ()) -> list[Sign]:
        """A loop without an optimizer has written its leaves."""
        wrong = [s for s in self._losses if s.wrong][:1]
        counted = self.state_spoilt(state) if state else wrong or self._demanded()
        if not counted:
            self._let_go("a loss was non-finite and the update was not")
        self._losses.clear()
        self.step_ends()
        return counted

    # ---- a search over settings -----------------------------------------------------------

    def trial_begins(self, search: Hashable) -> None:
        """One of several trainings, of which the program will choose."""
        trials = self.searches.setdefault(search, _Search())
        trials.begun += 1
        trials.is_lost = False

    def trial_lost(self, search: Hashable, sign: Sign, *, ends_so: bool = False) -> None:
        """What would have counted is a proposal that the program may reject. A test of rates `ends_so`."""
        trials = self.searches.setdefault(search, _Search())
        if trials.is_lost:
            return
        trials.lost += 1
        trials.first = trials.first or sign
        trials.is_lost, trials.ends_so = True, trials.ends_so or ends_so
        self._losses.clear()
        self._forget_words()
        self._read_before.clear()
        self._let_be("a trial of a search came to harm", sign.step)

    def first_lost(self, search: Hashable) -> Sign | None:
        """The first harm of its trials."""
        return self.searches[search].first if search in self.searches else None

    def is_lost(self, search: Hashable) -> bool:
        """Whether its newest trial came to harm: what that one does from then on counts for nothing."""
        return search in self.searches and self.searches[search].is_lost

    def _lost_all(self) -> list[Sign]:
        """The first harm of each search that has nothing to choose."""
        ended = [s for s in self.searches.values() if s.lost >= s.begun and not s.ends_so]
        return [s.first for s in ended if s.first is not None]

    # ---- what the program takes out ---------------------------------------------------------

    def read(self, place: Hashable, sign: Sign | None) -> None:
        """A value was taken out of a tensor. By itself that is nothing; it may be shown later."""
        if sign is None:  # what was read there before may be part of a sum by now
            self.finite_read(place)
            self._last_words.pop(("read", place), None)
            return
        if place in self._runs or len(self._runs) < MAX_READ:
            self._runs[place] = sign if sign.is_explained else replace(sign, proof=None)
        self._reads.pop(place, None)
        if sign.wrong:  # no text tells a wrong value from a right one
            self._last_words[("read", place)] = sign
        elif len(self._reads) < MAX_READ:
            self._reads[place] = sign

    def has_read(self, place: Hashable) -> bool:
        """Whether a bad value of this place is known already, or enough others."""
        return place in self._reads or len(self._reads) >= MAX_READ

    @property
    def follows(self) -> bool:
        """Whether some place has given nothing finite since it was bad."""
        return bool(self._runs)

    def bad_since(self, place: Hashable) -> Sign | None:
        """What is known of a place that has given nothing finite since: however many steps ago that is."""
        return self._runs.get(place)

    def finite_read(self, place: Hashable) -> None:
        """What is bad there from now on began anew."""
        self._runs.pop(place, None)

    def text_shown(
        self, place: Hashable, text: str, keeps: Callable[[Sign], bool] = lambda sign: False
    ) -> None:
        """The program printed this. It shows what it read last, if that can be seen in it, or else what
        it `keeps` of an earlier step, such as the sum of all losses."""
        shown = None
        if SHOWS_NONFINITE.search(text):
            before = (replace(s, is_kept=True) for s in self._read_before if keeps(s))
            shown = next(reversed(self._reads.values()), None) or next(before, None)
        if shown is not None:
            self._last_words[("shown", place)] = shown
        else:
            self._last_words.pop(("shown", place), None)

    def saved(self, place: Hashable, sign: Sign | None) -> None:
        """Tensors were written to a file."""
        self._note("saved", place, sign)

    def array_saved(self, place: Hashable, *, bad: bool) -> None:
        """An array was written to a file: what was read last, as far as one can tell."""
        newest = self._newest_read() if bad else []
        self._note("saved", place, newest[0] if newest else None)

    def model_returned(self, model: Hashable, sign: Sign | None) -> Sign | None:
        """The outermost model was called without gradients. In a program that trains nothing: what it
        returned before, if that was bad and nobody has dealt with it."""
        before = self._last_words.get(("output", model))
        self._note("output", model, sign)
        return None if self._has_stepped else before

    def has_returned(self, model: Hashable) -> bool:
        """Whether its last output was bad, and nobody has dealt with it."""
        return ("output", model) in self._last_words

    def output_cleaned(self, model: Hashable) -> None:
        """The program has dealt with that output."""
        self._last_words.pop(("output", model), None)

    def left_behind(self, results: Sequence[Sign]) -> None:
        """What a program that never steps holds in its hands when it ends: gradients, a loss."""
        for sign in results:
            self._last_words[("left", sign.subject)] = sign

    def asked_about(self, *, numbers: bool) -> None:
        """Somebody asks what this block did. A loss that it has not stepped with counts, and what it
        read if it leaves bad `numbers` behind."""
        self._asked = True
        for sign in self._newest_read() if numbers else ():
            self._last_words[("left", sign.subject)] = sign

    # ---- the end ------------------------------------------------------------------------------

    def raised(self, complaint: Sign | None, complains: bool) -> list[Sign]:
        """An exception leaves the program. One that complains of non-finite values is harm: that of
        the loss, if it was about to be stepped with, or of what it names, or of what was read."""
        losses = [s for s in self._losses if not s.wrong]
        if not complains:
            return []
        return losses or ([complaint] if complaint is not None else self._newest_read())

    def exits(self, code: int) -> list[Sign]:
        """The program ends itself. With an error, what it had just read is why."""
        return self._newest_read() if code else self.ends()

    def ends(self) -> list[Sign]:
        """The program is over: its last words count, in the order in which they were said."""
        left = self._asked or (self._spoilt and not self._has_stepped)
        losses = self._losses if left else [] if self._has_stepped else self._demanded()
        return [*self._lost_all(), *losses, *self._last_words.values()]

    # ---- parts ----------------------------------------------------------------------------------

    def _demanded(self) -> list[Sign]:
        """Losses that had to be finite: nobody would call a change right that leaves them so."""
        if self.finite_from is None:
            return []
        return [s for s in self._losses if not s.wrong and s.step >= self.finite_from]

    def _newest_read(self) -> list[Sign]:
        return list(self._reads.values())[-1:]

    def _note(self, kind: str, place: Hashable, sign: Sign | None) -> None:
        self._last_words.pop((kind, place), None)  # and to the end of the line
        if sign is not None:
            self._last_words[(kind, place)] = sign

    def _forget_words(self) -> None:
        """Training goes on: what was said before is not the last word."""
        bad = [s for s in self._reads.values() if s.value is not None and s.value != s.value]
        new = [s for s in bad if not any(s is known for known in self._read_before)]
        self._read_before = [*self._read_before, *new][:MAX_READ]
        self._reads.clear()
        self._last_words.clear()

    def _let_go(self, what: str) -> None:
        if self._losses:
            self._let_be(what, self._losses[0].step)
        self._losses.clear()

    def _let_be(self, what: str, step: int) -> None:
        if len(self.silent) < MAX_SILENT:
            self.silent.append(Silent(what=what, step=step))
