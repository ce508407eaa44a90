"""`whynan lint --lsp`: findings in an editor while the file is typed, by the language server protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import PositionCodec, TextDocument

from whynan.errors import WhynanError
from whynan.explain.rule_text import pages
from whynan.lint.finding import Finding
from whynan.lint.fixer import fix, with_one
from whynan.lint.layout import LINES
from whynan.lint.runner import Runner, Task
from whynan.lint.selection import Config, choose, read_config
from whynan.version import __version__

DELAY_S = 0.15  # after the last key
SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "info": lsp.DiagnosticSeverity.Information,
}
FIX_ALL = f"{lsp.CodeActionKind.SourceFixAll.value}.whynan"


class Linter:
    """Findings of the texts as they are in the editor."""

    def __init__(self, select: tuple[str, ...], ignore: tuple[str, ...]) -> None:
        self.select, self.ignore = select, ignore
        self.trouble: str | None = None  # with pyproject.toml, to be said once
        self._runners: dict[tuple[Config, tuple[str, ...]], Runner] = {}

    def findings(self, document: TextDocument) -> list[Finding]:
        """None in a file that is no Python at the moment: its editor says that better."""
        if not document.path or not document.path.endswith((".py", ".pyi", ".pyw")):
            return []
        runner = self._runner(Path(document.path).parent)
        result, _ = runner.text(document.path, document.source)
        return [f for f in result.findings if f.code != "N000"]

    def _runner(self, folder: Path) -> Runner:
        try:
            config = read_config(folder)
            select = self.select or config.select
            ignore = (*config.ignore, *self.ignore)
            choose(select, ignore)
        except WhynanError as error:
            self.trouble = str(error)
            config, select, ignore = Config(root=folder), self.select, self.ignore
        key = (config, (*select, "", *ignore))
        if key not in self._runners:
            self._runners[key] = Runner(Task(select=select, ignore=ignore, config=config))
        return self._runners[key]


def serve(select: tuple[str, ...], ignore: tuple[str, ...]) -> None:
    """Until the editor closes standard input."""
    choose(select, ignore)
    server(Linter(select, ignore)).start_io()


def server(linter: Linter) -> LanguageServer:
    """What an editor may ask."""
    made = LanguageServer("whynan", __version__)

    def publish(uri: str) -> None:
        document = made.workspace.get_text_document(uri)
        places = _Places(document, made.workspace.position_codec)
        shown = [places.diagnostic(f) for f in linter.findings(document)]
        made.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri=uri, version=document.version, diagnostics=shown)
        )
        if linter.trouble is not None:
            said, linter.trouble = linter.trouble, None
            made.window_log_message(
                lsp.LogMessageParams(lsp.MessageType.Warning, f"whynan: {said}")
            )

    @made.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        publish(params.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: lsp.DidSaveTextDocumentParams) -> None:
        publish(params.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        await asyncio.sleep(DELAY_S)
        uri = params.text_document.uri
        document = made.workspace.text_documents.get(uri)
        if document is not None and document.version == params.text_document.version:
            publish(uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        empty = lsp.PublishDiagnosticsParams(uri=params.text_document.uri, diagnostics=[])
        made.text_document_publish_diagnostics(empty)

    @made.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        document = made.workspace.get_text_document(params.text_document.uri)
        places = _Places(document, made.workspace.position_codec)
        here = [f for f in linter.findings(document) if _holds(places.range(f), params.position)]
        if not here:
            return None
        text = "\n\n---\n\n".join(_page(f) for f in here)
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), places.range(here[0]))

    kinds: list[lsp.CodeActionKind | str] = [lsp.CodeActionKind.QuickFix, FIX_ALL]

    @made.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=kinds))
    def actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        document = made.workspace.get_text_document(params.text_document.uri)
        places = _Places(document, made.workspace.position_codec)
        found = linter.findings(document)
        wanted = params.context.only
        offered = []
        if _asked(wanted, lsp.CodeActionKind.QuickFix.value):
            for one in found:
                if _meet(places.range(one), params.range):
                    offered += places.quick_fixes(one)
        if _asked(wanted, FIX_ALL) and any(f.replacement for f in found):
            fixed, count = fix(
                document.source, lambda text: linter.findings(places.with_text(text))
            )
            if count:
                offered.append(places.action("whynan: apply every fix", FIX_ALL, fixed))
        return offered

    return made


class _Places:
    """One document's positions in the editor's units, and changes of it."""

    def __init__(self, document: TextDocument, codec: PositionCodec) -> None:
        self._document, self._codec = document, codec
        self._lines = document.source.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def with_text(self, text: str) -> TextDocument:
        return TextDocument(self._document.uri, text)

    def range(self, found: Finding) -> lsp.Range:
        start = lsp.Position(found.line - 1, found.column)
        end = lsp.Position(found.end_line - 1, found.end_column)
        return self._codec.range_to_client_units(self._lines, lsp.Range(start, end))

    def diagnostic(self, found: Finding) -> lsp.Diagnostic:
        return lsp.Diagnostic(
            range=self.range(found), message=f"{found.message}\nhelp: {found.help}",
            severity=SEVERITY[found.severity], code=f"{found.code} {found.slug}", source="whynan",
        )  # fmt: skip

    def quick_fixes(self, found: Finding) -> list[lsp.CodeAction]:
        """The fix, where there is one that keeps the mathematics, and a comment that allows it."""
        offered, shown = [], [self.diagnostic(found)]
        if found.replacement is not None:
            changed = with_one(self._document.source, found.replacement)
            if changed is not None:
                title = f"whynan: {found.help}"
                offered.append(
                    self.action(title, lsp.CodeActionKind.QuickFix.value, changed, shown)
                )
        if found.code != "N001":
            allowed = _allowing(_lines(self._document.source), found)
            if allowed is not None:
                title = f"whynan: allow {found.slug} here"
                kind = lsp.CodeActionKind.QuickFix.value
                offered.append(self.action(title, kind, allowed, shown))
        return offered

    def action(
        self, title: str, kind: str, text: str, shown: list[lsp.Diagnostic] | None = None
    ) -> lsp.CodeAction:
        """A change of the whole text, as the lines that differ."""
        before, after = _lines(self._document.source), _lines(text)
        first = 0
        while first < min(len(before), len(after)) and before[first] == after[first]:
            first += 1
        last = 0
        while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
            last += 1
        span = lsp.Range(lsp.Position(first, 0), lsp.Position(len(before) - last, 0))
        edit = lsp.TextEdit(span, "".join(after[first : len(after) - last]))
        name = lsp.OptionalVersionedTextDocumentIdentifier(
            self._document.uri, self._document.version
        )
        changes: Any = [lsp.TextDocumentEdit(name, [edit])]
        return lsp.CodeAction(
            title=title, kind=kind, diagnostics=shown, is_preferred=shown is not None,
            edit=lsp.WorkspaceEdit(document_changes=changes),
        )  # fmt: skip


def _lines(text: str) -> list[str]:
    """As the protocol counts them."""
    return LINES.findall(text)


def _allowing(lines: list[str], found: Finding) -> str | None:
    line = lines[found.line - 1]
    bare = line.rstrip("\r\n")
    if "#" in bare or bare.endswith("\\") or found.line != found.end_line:
        return None
    changed = f"{bare}  # whynan: allow[{found.slug}]{line[len(bare) :]}"
    return "".join([*lines[: found.line - 1], changed, *lines[found.line :]])


def _page(found: Finding) -> str:
    return f"**{found.message}**\n\n{found.help}\n\n```text\n{pages(found.slug).strip()}\n```"


def _asked(wanted: Any, kind: str) -> bool:
    """An editor asks for a kind by its name or by the beginning of it."""
    names = [getattr(w, "value", w) for w in wanted or [kind]]
    return any(kind == name or kind.startswith(f"{name}.") for name in names)


def _holds(span: lsp.Range, at: lsp.Position) -> bool:
    return _at(span.start) <= _at(at) <= _at(span.end)


def _meet(one: lsp.Range, other: lsp.Range) -> bool:
    return _at(one.start) <= _at(other.end) and _at(other.start) <= _at(one.end)


def _at(position: lsp.Position) -> tuple[int, int]:
    return position.line, position.character
