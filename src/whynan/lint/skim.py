"""Which files, and which functions in them, can hold a pattern at all: by their text, before anything is walked."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator

RELEVANT = re.compile(r"\b(torch|numpy)\b")
# No pattern is without one of these, or without a pair of the next. Searched as plain text, which is five times as
# fast as a regular expression.
WORDS = """
    log( log2( log10( log1p( log_( log_softmax logsumexp logit exp( exp_( exp2( softmax( Softmax sigmoid Sigmoid
    sqrt acos arccos asin arcsin tanh Tanh erfinv ndtri gamma .nan 'nan "nan NaN NAN .inf -inf 'inf "inf NINF
    empty( empty_ Tensor( kl_div KLDiv nll_loss NLLLoss ** pow( pow_( power( square( inv( inverse( prod( clip_grad
    where( masked_fill reciprocal mean( _loss( entr( xlogy expit half float16
"""
PAIRS = (
    (
        "sum( norm std min( var( aminmax bincount histc histogram dot( abs(",
        r"[\w\])]\s*/=?\s*[\w(]|div\w*\(",
    ),
    ("/ div", r"(\b\w+)\s*-\s*\1\b"),
)
# What else a line may hold where something was made elsewhere: a quotient of two attributes, a loss.
ALSO = " ".join([WORDS, *(words for words, _ in PAIRS), "cross_entropy"])
# A loss that `__init__` chose is called without its name.
CHOSEN = re.compile(r"(BCE\w*|Entropy|NLL|KLDiv|MSE)Loss\b")
LONG = re.compile(r'("""|\'\'\')[\s\S]*?\1')


def _code(text: str) -> str:
    """Without long strings, which are documentation; its lines stay."""
    if text.count('"""') % 2 or text.count("'''") % 2:
        return text
    return LONG.sub(lambda found: "\n" * found[0].count("\n"), text)


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        # Not the stars of `f(**kwargs)`.
        if word != "**" or text[max(0, at - 2) : at].rstrip(" ")[-1:] not in ("", "(", ",", "{", "\n"):  # fmt: skip
            yield at
        at = text.find(word, at + len(word))


class Skim:
    """The lines of one file that something can be said about."""

    def __init__(self, text: str) -> None:
        lines = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
        self.code = _code(lines) if RELEVANT.search(text) else ""

    @property
    def is_relevant(self) -> bool:
        code = self.code
        if any(next(_places(code, word), -1) >= 0 for word in WORDS.split()):
            return True
        return any(
            any(w in code for w in words.split()) and re.search(other, code)
            for words, other in PAIRS
        )

    def read(self) -> Skim:
        """Which lines they are."""
        code = self.code
        self._all = CHOSEN.search(code) is not None
        self._lines: list[int] = []
        line, before = 1, 0
        for at in sorted(p for word in ALSO.split() for p in _places(code, word)):
            line += code.count("\n", before, at)
            before = at
            self._lines.append(line)
        return self

    def holds(self, first: int, last: int | None) -> bool:
        """May something be found between two lines?"""
        at = bisect.bisect_left(self._lines, first)
        return self._all or (at < len(self._lines) and self._lines[at] <= (last or first))
