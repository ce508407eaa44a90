"""NumPy in a program that runs: what it warned of, and whether that did harm.

Python prints NumPy's warning exactly when neither `np.errstate(...="ignore")` nor a filter of the
program says that it is meant, so that is where this listens: nothing is changed while all is well.
A warning is not harm. Harm is a value that came from there and is printed, saved or left as the
result, an exception about it, or a tensor made of it.
"""

from __future__ import annotations

import functools
import math
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

from whynan import voice
from whynan.arrays.contents import kinds_in, kinds_of_text
from whynan.arrays.into_torch import crossed
from whynan.arrays.library_watch import LibraryWatch
from whynan.arrays.made_again import made_again
from whynan.arrays.numpy_errors import Event, Place, event_of, places_of
from whynan.arrays.place import is_library, is_own, programs_own
from whynan.arrays.reach import results, way
from whynan.arrays.tables import (
    divided,
    holds_what_was_made,
    is_table,
    watch_division,
    watch_writers,
)
from whynan.model import Evidence, OpRecord, Site
from whynan.source.positions import site_at

SAID = re.compile(
    r"(divide by zero|invalid value|overflow) encountered in |Mean of empty slice|"
    r"Degrees of freedom <= 0"
)
COMPLAINT = re.compile(r"\bnans?\b|\binfs?\b|\binfinit|finite|singular|converge", re.IGNORECASE)
# 0 * inf and inf - inf: of finite numbers these are never invalid.
NEEDS_INFINITY = re.compile(r"invalid value encountered in (scalar )?(multiply|add|subtract)$")
MAX_EVENTS = 50
NUMPYS_OWN = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
UNHEARD = ("warn", "ignore")
FLAGS = {"divide by zero": "divide", "overflow": "over", "underflow": "under", "invalid value": "invalid"}  # fmt: skip
MAX_LOOKS = 200  # a program that prints NaN all day must not be slowed
WRITERS = ("save", "savez", "savez_compressed", "savetxt")


class NumpyWatch:
    """`start()`, run the program, `harms()` at its end; `cross()` for what torch's recorder found."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._harms: dict[int, Evidence] = {}  # by the event's position
        self._crossed: dict[int, tuple[Evidence, Evidence]] = {}
        self._undo: list[Callable[[], object]] = []
        self._looking: int | None = None  # the thread in which we look at something
        self._showing = False
        self._is_shown = False  # no filter of the program's keeps back the warning that we repeat
        self._looks = 0
        self._impl: Any = None
        self._tables_watched = False
        self.libraries = LibraryWatch(
            self._happened, self._quietly, lambda: self._looking == threading.get_ident(), self._watch_writers,
        )  # fmt: skip

    def start(self) -> None:
        module: Any = warnings
        # What the interpreter calls when a warning is to be shown; not public, so it may go.
        shown = getattr(module, "_showwarnmsg", None)
        if shown is None:
            return
        self._impl = getattr(module, "_showwarnmsg_impl", None)

        def show(message: Any) -> None:
            if self._looking == threading.get_ident():
                self._is_shown = True
                return  # an operation that is done again
            frame = sys._getframe(1)
            self._quietly(lambda: self._warned(message, frame))
            self._showing = True
            try:
                shown(message)
            finally:
                self._showing = False

        module._showwarnmsg = show
        self._undo.append(lambda: setattr(module, "_showwarnmsg", shown))

    def hear_hidden(self) -> None:
        """In a second run, whose output is laid aside: also what `np.seterr` or a filter of the program's
        keeps back. Of torch's harm it may be the origin; by itself it is none."""
        np: Any = sys.modules.get("numpy")
        if np is None or np.geterr() != NUMPYS_OWN:
            return
        original, asked = np.seterr, dict(NUMPYS_OWN)

        def seterr(all: str | None = None, **kinds: str | None) -> dict[str, str]:
            before = dict(asked)
            asked.update({kind: new for kind in asked if (new := kinds.get(kind) or all)})
            heard = {k: "call" if v in UNHEARD and k != "under" else v for k, v in asked.items()}
            original(**heard)
            return before

        before = np.seterrcall(lambda kind, _: self._heard(kind, asked, sys._getframe(1)))
        np.seterr = seterr
        seterr()
        self._undo += [
            lambda: setattr(np, "seterr", original),
            lambda: np.seterrcall(before),
            lambda: original(**NUMPYS_OWN),
        ]

    def _heard(self, kind: str, asked: dict[str, str], frame: FrameType) -> None:
        if self._looking == threading.get_ident() or len(self.events) >= MAX_EVENTS:
            return

        said = f"{kind} encountered in an operation"

        def look() -> None:
            event = event_of(frame, said)
            if event is not None:
                self._happened(replace(event, is_hidden=not self._is_shown))

        before, self._looking, self._is_shown = self._looking, threading.get_ident(), False
        try:
            if asked[FLAGS[kind]] == "warn":
                warnings.warn(said, RuntimeWarning, stacklevel=3)  # a filter may make it an error
        finally:
            self._looking = before
            self._quietly(look)

    def add(self, name: str) -> None:
        """A library that the program has imported."""
        if name == "pandas":
            self._undo += watch_division(
                lambda *seen: self._quietly(functools.partial(self._divided, *seen))
            )
        else:
            self.libraries.add(name)

    def _divided(self, operands: list[Any], quotient: Any, frame: FrameType) -> None:
        user = programs_own(frame)
        site = site_at(user.f_code, user.f_lasti) if user is not None else None
        found = divided(operands, quotient, site) if site is not None else None
        if found is not None:
            self._happened(Event(found, "", places_of(user), follows=False))

    def stop(self) -> None:
        self.libraries.stop()
        while self._undo:
            self._undo.pop()()

    def harms(self, error: BaseException | None) -> tuple[Evidence, ...]:
        """At the program's end, `error` being the exception that ended it."""
        if error is None or isinstance(error, SystemExit):
            self._quietly(self._left_over)
        else:
            self._quietly(lambda: self._raised(error))
        return tuple(self._harms[i] for i in sorted(self._harms))

    def cross(self, evidence: Evidence) -> Evidence:
        """Torch's harm by data or a number that was bad when it came in: back to its line. Of another
        one, what the program computed for it."""
        if id(evidence) not in self._crossed:
            result, frame = [evidence], sys._getframe(1)
            came_in = evidence.origin_kind in ("entry", "number")
            if came_in:
                self._quietly(lambda: result.append(self._to_its_line(evidence, frame)))
            self._quietly(lambda: result.append(_with_setting(result[-1], frame)))
            self._crossed[id(evidence)] = (evidence, result[-1])
        return self._crossed[id(evidence)][1]

    def _to_its_line(self, evidence: Evidence, frame: FrameType) -> Evidence:
        warned = crossed(evidence, self.events, places_of(frame)) if self.events else evidence
        if warned.origin is not evidence.origin:
            return warned
        return made_again(evidence, frame) or warned

    # ---- what NumPy says ----------------------------------------------------------------

    def _quietly(self, look: Callable[[], Any]) -> None:
        """A look of ours: neither its errors nor its own warnings reach the program."""
        if self._looking is not None:
            return
        self._looking = threading.get_ident()
        try:
            np = sys.modules.get("numpy")
            if np is not None:
                with np.errstate(all="ignore"):
                    look()
        except Exception as error:  # whynan's own failure must not become the program's
            voice.say(f"could not look at a NumPy value: {error!r}")
        finally:
            self._looking = None

    def _warned(self, message: Any, frame: FrameType) -> None:
        module: Any = warnings
        # `catch_warnings(record=True)` replaces it.
        caught = getattr(module, "_showwarnmsg_impl", None) is not self._impl
        said = str(message.message)
        if caught or not issubclass(message.category, RuntimeWarning) or not SAID.match(said):
            return
        event = event_of(frame, said) if len(self.events) < MAX_EVENTS else None
        if event is not None:
            self._happened(event)

    def _happened(self, event: Event) -> None:
        known = [(e.evidence.origin.site, e.places) for e in self.events]
        if len(self.events) >= MAX_EVENTS or (event.evidence.origin.site, event.places) in known:
            return
        if event.follows or NEEDS_INFINITY.match(event.said):  # an earlier event's may have gone on
            before = [e for e in self.events if way(e.places, event.places) is not None]
            if before:
                _follow(before[0], event.evidence.origin)
                return
        self.events.append(event)
        if len(self.events) == 1:
            self._watch_output()
        if not self._tables_watched:
            undo = watch_writers(self._table_written)
            self._tables_watched = bool(undo)
            self._undo += undo

    def _watch_output(self) -> None:
        """From the first event on: what is printed and saved."""
        for stream in (sys.stdout, sys.stderr):
            self._listen(stream)
        np: Any = sys.modules["numpy"]
        self._watch_writers(np)

    def _watch_writers(self, library: Any) -> None:
        for name in WRITERS:
            if hasattr(library, name):
                self._watch_writer(library, name, getattr(library, name))

    def _listen(self, stream: Any) -> None:
        write = getattr(stream, "write", None)
        before = vars(stream).get("write") if hasattr(stream, "__dict__") else None
        own = before is not None and hasattr(before, "__wrapped__")  # whynan listens there, too
        if not hasattr(stream, "__dict__") or write is None or (before is not None and not own):
            return  # the program's own device

        def listening(text: str) -> Any:
            if (
                not self._showing
                and isinstance(text, str)
                and any(word in text for word in ("nan", "NaN", "inf"))
            ):
                frame = sys._getframe(1)
                self._quietly(lambda: self._printed(text, frame))
            return write(text)

        stream.write = listening
        self._undo.append(
            lambda: setattr(stream, "write", write) if own else vars(stream).pop("write", None)
        )

    def _watch_writer(self, np: Any, name: str, original: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def writer(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            self._quietly(lambda: self._saved([*args[1:], *kwargs.values()], frame))
            return original(*args, **kwargs)

        setattr(np, name, writer)
        self._undo.append(lambda: setattr(np, name, original))

    def _saved(self, values: list[Any], frame: FrameType) -> None:
        kinds = kinds_in(values)
        if kinds:
            self._reached("the saved array", frame, kinds)

    def _table_written(self, table: Any, frame: FrameType) -> None:
        kinds = kinds_in(table)
        if kinds:
            self._quietly(lambda: self._reached("the written copy", frame, kinds))

    # ---- harm -----------------------------------------------------------------------------

    def _printed(self, text: str, frame: FrameType) -> None:
        if is_own(frame.f_code.co_filename) or frame.f_code.co_filename == traceback.__file__:
            return  # a report of ours, or an error that speaks for itself
        user = programs_own(frame)
        if user is None:
            return
        kinds = kinds_of_text(text)
        if kinds:
            minus = "inf" not in text.replace("-inf", "")
            self._reached("the printed value", user, kinds, -math.inf if minus else math.inf)

    def _reached(
        self, subject: str, frame: FrameType, kinds: frozenset[str], infinite: float | None = None
    ) -> None:
        if self._looks >= MAX_LOOKS or len(self._harms) == len(self.events):
            return
        self._looks += 1
        places = places_of(frame)
        user = programs_own(frame)
        if user is None:
            return
        site = site_at(user.f_code, user.f_lasti)
        for i, event in enumerate(self.events):
            aside = event.is_hidden or event.is_share_of_nothing
            found = None if aside else way(event.places, places)
            if found is None:
                continue
            seen = kinds - found.innocent
            if "nan" in seen and is_table(found.value):
                seen -= frozenset() if holds_what_was_made(found.value, event) else {"nan"}
            if not seen & event.kinds:
                continue
            value = math.nan if "nan" in seen else infinite
            named = f"{subject} of `{found.name}`" if found.name else subject
            self._harm(i, "observed", named, site, value)
            return

    def _harm(self, i: int, sink: Any, subject: str, site: Site | None, value: float | None,
              message: str | None = None) -> None:  # fmt: skip
        event = self.events[i]
        evidence = replace(
            event.evidence, sink=sink, subject=subject, sink_site=site, message=message,
            sink_value=event.evidence.sink_value if value is None else value,
        )  # fmt: skip
        self._harms.setdefault(i, evidence)

    def _raised(self, error: BaseException) -> None:
        """The program ended with NumPy's own error, or with one about such a value."""
        text = str(error)
        steps = [
            (f, line)
            for f, line in traceback.walk_tb(error.__traceback__)
            if not is_library(f.f_code.co_filename)
        ]
        if not steps or not isinstance(error, Exception):
            return
        frame = steps[-1][0]
        if isinstance(error, (FloatingPointError, RuntimeWarning)) and SAID.match(text):
            event = event_of(frame, text, _lasti(error, frame))
            if event is None:
                return
            self.events.append(event)
            i = len(self.events) - 1
        else:
            places = tuple(Place(id(f), f.f_code, line) for f, line in reversed(steps))
            shown = [(i, e) for i, e in enumerate(self.events) if not e.is_hidden]
            ways = [i for i, e in shown if way(e.places, places, tested=True)]
            if not ways or not COMPLAINT.search(text):
                return
            i = ways[0]
        site = site_at(frame.f_code, _lasti(error, frame))
        self._harm(i, "exception", type(error).__name__, site, None, text.split("\n")[0])

    def _left_over(self) -> None:
        scope = vars(sys.modules["__main__"])
        for i, event in enumerate(self.events):
            aside = event.is_hidden or event.is_share_of_nothing
            for name in () if aside else results(event, scope):
                self._harm(i, "output", f"the result `{name}`", event.evidence.origin.site, None)


def _with_setting(evidence: Evidence, frame: FrameType) -> Evidence:
    from whynan.arrays.set_here import with_setting  # torch is there by now

    return with_setting(evidence, frame)


def _follow(event: Event, op: OpRecord) -> None:
    """Note what an infinity turned into; once is enough."""
    if not event.followers and op.value is not None and math.isnan(op.value):
        event.followers.append(op)


def _lasti(error: BaseException, frame: FrameType) -> int:
    trace, lasti = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame is frame:
            lasti = trace.tb_lasti
        trace = trace.tb_next
    return lasti
