"""One anomaly beside the source it happened in: what every rewrite looks at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

import libcst as cst

from whynan.model import Anomaly, Operand, OpRecord, Site
from whynan.ops.table import forward_of
from whynan.repair.edit import Edit
from whynan.repair.originals import Originals, python_files
from whynan.repair.settings import Settings
from whynan.repair.source import Expression, Source
from whynan.repair.tidy import tidied
from whynan.source.trees import UNREADABLE

HALF = ("float16", "bfloat16")


class Tier(IntEnum):
    """In which order changes are tried."""

    EXACT = 0  # the same mathematics
    GUARD = 1  # values change only near the singular point
    TRAINING = 2  # the run takes another course


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A change to the source, not tried yet."""

    kind: str
    title: str
    tier: Tier
    texts: Mapping[str, str]  # changed files, by their real paths
    intervention: str | None = None  # done from outside, where the source shows no place for it
    # The same with steps of half the length: it has to agree.
    finer: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Case:
    """An anomaly and the user's files as they are, or as an earlier round changed them."""

    anomaly: Anomaly
    texts: Mapping[str, str] = field(default_factory=dict)  # files changed by earlier rounds
    root: str = ""  # the folder of the program: files outside of it are not changed
    originals: Originals = field(default_factory=Originals)

    @property
    def mechanism(self) -> str:
        return self.anomaly.finding.mechanism

    @property
    def origin(self) -> OpRecord:
        return self.anomaly.origin

    @property
    def dtype(self) -> str:
        return self.origin.dtype

    @cached_property
    def forward_op(self) -> str:
        """The operation's name; of a derivative, that of the function it belongs to."""
        node = self.origin.node if self.origin.derived else None
        return self.origin.name if node is None else forward_of(node)

    @cached_property
    def site(self) -> Site | None:
        """The origin's line in the user's own project; the call of an installed package."""
        site = self.origin.site
        while site is not None and not self.is_own(site.file):
            site = site.caller
        return site

    @cached_property
    def source(self) -> Source | None:
        return self.source_of(self.site.file) if self.site is not None else None

    @cached_property
    def node(self) -> Expression | None:
        """The expression that failed."""
        if self.source is None or self.site is None:
            return None
        return self.source.expression_at(self.site)

    @property
    def culprit(self) -> Operand | None:
        index = self.anomaly.finding.culprit
        return self.origin.inputs[index] if index is not None else None

    @property
    def before(self) -> tuple[str, ...]:
        """Names of the operations that made the guilty operand, nearest first."""
        return tuple(op.name for op in self.culprit.upstream) if self.culprit else ()

    def with_texts(self, texts: Mapping[str, str]) -> Case:
        """The same anomaly beside files that were changed further."""
        return replace(self, texts=texts)

    def at(self, site: Site) -> Case:
        """The same anomaly where an equivalent text has its expression."""
        origin = replace(self.origin, site=site)
        evidence = replace(self.anomaly.evidence, origin=origin)
        return replace(self, anomaly=replace(self.anomaly, evidence=evidence))

    def is_own(self, file: str) -> bool:
        path = os.path.realpath(file)
        return path in self.originals.cells or (
            path.startswith(os.path.realpath(self.root or os.getcwd()) + os.sep)
            and "site-packages" not in path
            and os.path.isfile(path)
        )

    def source_of(self, file: str) -> Source | None:
        file = os.path.realpath(file)  # sites and projects may spell it in different ways
        text = self.texts.get(file)
        if text is None:
            text = self.originals.text(file)
        if text is None:
            return None
        known = self.originals.parsed
        if (file, text) not in known:
            try:
                known[file, text] = Source(file, text) if self.originals.may_parse(text) else None
            except (cst.ParserSyntaxError, *UNREADABLE):
                known[file, text] = None
        return known[file, text]

    def files(self) -> Iterator[Source]:
        """The user's files that the story touches, the origin's first."""
        sites = [
            self.site,
            *(link.site for link in self.anomaly.chain),
            self.anomaly.evidence.sink_site,
        ]
        seen: set[str] = set()
        for site in sites:
            while site is not None:
                if site.file not in seen and self.is_own(site.file):
                    seen.add(site.file)
                    source = self.source_of(site.file)
                    if source is not None:
                        yield source
                site = site.caller

    def upstream_expression(self, *ops: str) -> tuple[Source, Expression, OpRecord] | None:
        """The source of an operation that led to the guilty operand."""
        for op in self.culprit.upstream if self.culprit else ():
            if op.name in ops and op.site is not None and self.is_own(op.site.file):
                source = self.source_of(op.site.file)
                node = source.expression_at(op.site) if source is not None else None
                if source is not None and node is not None:
                    return source, node, op
        return None

    def change(self, edit: Edit, kind: str, title: str, tier: Tier) -> Iterator[Candidate]:
        """The candidate, unless the change turns out to be none or not to parse."""
        yield from self.change_all([edit], kind, title, tier)

    def change_all(
        self, edits: Sequence[Edit], kind: str, title: str, tier: Tier
    ) -> Iterator[Candidate]:
        """One candidate that changes several files."""
        texts = dict(self.texts)
        for edit in edits:
            try:
                texts[edit.source.path] = self._tidied(edit)
            except (cst.ParserSyntaxError, cst.CSTValidationError):
                return
        if any(texts[edit.source.path] != edit.source.text for edit in edits):
            yield Candidate(kind=kind, title=title, tier=tier, texts=texts)

    def _tidied(self, edit: Edit) -> str:
        """Without what only the old text read."""
        text, before = edit.text(), edit.source.text
        if "\r" in before or text == before or isinstance(edit.source, Settings):
            return text
        files = python_files(self.root or os.getcwd())
        others = (self.originals.text(f) or "" for f in files if f != edit.source.path)
        return tidied(before, text, others)
