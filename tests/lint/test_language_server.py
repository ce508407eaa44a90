"""`whynan lint --lsp`, asked by a real client through standard input and output."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

PROGRAM = """import torch

def loss(x, y):
    # é𝛼: two units in UTF-16
    p = "𝛼", torch.log(torch.softmax(x, dim=-1))
    return p[1] * y
"""


class Editor:
    """Opens one file and remembers what it was told of it."""

    def __init__(self, path: Path) -> None:
        self.uri = path.as_uri()
        self.client = LanguageClient("editor", "1")
        self.told: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
        def published(params: lsp.PublishDiagnosticsParams) -> None:
            self.told.put_nowait(params)

    async def open(self, text: str) -> list[lsp.Diagnostic]:
        await self.client.start_io(sys.executable, "-m", "whynan", "lint", "--lsp")
        await self.client.initialize_async(
            lsp.InitializeParams(capabilities=lsp.ClientCapabilities())
        )
        self.client.initialized(lsp.InitializedParams())
        item = lsp.TextDocumentItem(self.uri, "python", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return await self.diagnostics(1)

    async def type(self, text: str, version: int) -> list[lsp.Diagnostic]:
        name = lsp.VersionedTextDocumentIdentifier(version, self.uri)
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(name, [change]))
        return await self.diagnostics(version)

    async def diagnostics(self, version: int) -> list[lsp.Diagnostic]:
        while True:
            told = await asyncio.wait_for(self.told.get(), 60)
            if told.version == version:
                return list(told.diagnostics)

    async def actions(self, at: lsp.Range, only: list[str] | None = None) -> list[Any]:
        context = lsp.CodeActionContext(diagnostics=[], only=only)
        asked = lsp.CodeActionParams(lsp.TextDocumentIdentifier(self.uri), at, context)
        return list(await self.client.text_document_code_action_async(asked) or [])

    async def close(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()


def applied(text: str, action: lsp.CodeAction) -> str:
    assert action.edit is not None
    assert action.edit.document_changes is not None
    change: Any = action.edit.document_changes[0]
    lines = text.splitlines(keepends=True)
    for edit in change.edits:
        assert edit.range.start.character == edit.range.end.character == 0
        lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
    return "".join(lines)


def test_an_editor_is_told_while_typing_and_offered_fixes(tmp_path: Path) -> None:
    asyncio.run(_session(tmp_path))


async def _session(folder: Path) -> None:
    editor = Editor(folder / "train.py")
    [found] = await editor.open(PROGRAM)
    assert found.code == "N012 log-softmax"
    assert found.severity == lsp.DiagnosticSeverity.Error
    line = PROGRAM.splitlines()[4]
    first = len(line[: line.index("torch.log")].encode("utf-16-le")) // 2
    assert (found.range.start.line, found.range.start.character) == (4, first)

    at = lsp.HoverParams(lsp.TextDocumentIdentifier(editor.uri), found.range.start)
    page = await editor.client.text_document_hover_async(at)
    assert isinstance(page, lsp.Hover)
    assert isinstance(page.contents, lsp.MarkupContent)
    assert "Why it hurts" in page.contents.value
    beside = lsp.HoverParams(lsp.TextDocumentIdentifier(editor.uri), lsp.Position(0, 0))
    assert await editor.client.text_document_hover_async(beside) is None

    fix, allow = await editor.actions(found.range, ["quickfix"])
    assert "functional.log_softmax(x, dim=-1)" in applied(PROGRAM, fix)
    assert "# whynan: allow[log-softmax]" in applied(PROGRAM, allow)
    [everything] = await editor.actions(found.range, ["source.fixAll"])
    assert applied(PROGRAM, everything) == applied(PROGRAM, fix)
    assert (
        await editor.actions(lsp.Range(lsp.Position(0, 0), lsp.Position(0, 1)), ["quickfix"]) == []
    )

    assert await editor.type(applied(PROGRAM, fix), 2) == []
    assert await editor.type(PROGRAM.replace("y):", "y:"), 3) == []  # half a line is no finding
    assert len(await editor.type(PROGRAM, 4)) == 1
    assert await editor.type(applied(PROGRAM, allow), 5) == []
    await editor.close()


def test_a_wrong_setting_leaves_the_editor_with_the_usual_patterns(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.whynan.lint]\nignore = ["no-such"]\n')

    async def session() -> int:
        editor = Editor(tmp_path / "train.py")
        found = await editor.open(PROGRAM)
        await editor.close()
        return len(found)

    assert asyncio.run(session()) == 1
