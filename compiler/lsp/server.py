"""The server: passes the protocol's requests to the modules that answer them.

A single thread reads and plans in the order of requests, so that the event loop always listens. An
edit is read after a short pause; if the user types more in the meantime, the file is read again.
Each file has one reading at a time, and its last text is always read.
"""

import asyncio
import os
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from tunec.compiler.lsp import outline
from tunec.compiler.lsp.actions import FIX_ALL, actions
from tunec.compiler.lsp.analysis import Analysis, Registry
from tunec.compiler.lsp.completion import complete
from tunec.compiler.lsp.desk import Desk, Open
from tunec.compiler.lsp.hints import hints
from tunec.compiler.lsp.hover import hover
from tunec.compiler.lsp.links import links
from tunec.compiler.lsp.places import Text, holds, location, uri_of

_PAUSE_SECONDS: Final = 0.02
_QUIET_SECONDS: Final = 0.3
"""Seconds without typing before the server looks for repairs, which takes as long as many plans."""
_TRIGGERS: Final = [":", " ", "-", "@", '"', "/", "."]
CHANGES: Final = "tunec.changes"
"""The server's command that shows what a spec changes since the last commit."""
_Result = TypeVar("_Result")


class Server(LanguageServer):
    """A language server with one desk."""

    def __init__(self, version: str, registry: Registry) -> None:
        super().__init__("tunec", version, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.desk = Desk(registry)
        self._worker = ThreadPoolExecutor(1, "tunec")
        self._reading: dict[Path, asyncio.Task[None]] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._folder: TemporaryDirectory[str] | None = None

    async def ask(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        """The result of work that reads or plans, done after all work requested earlier."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, lambda: work(*arguments))

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def changed(self, uri: str, text: str, version: int | None) -> None:
        """Take the new text of an open file, and schedule its reading."""
        path = path_of(uri)
        if path is not None:
            self.desk.open[path] = Open(text, version)
            self._read_soon(path)

    def closed(self, uri: str) -> None:
        """Forget a file and its diagnostics."""
        path = path_of(uri)
        if path is not None:
            self.desk.close(path)
            self._show(path)

    def disk_changed(self) -> None:
        """Read every open file again, since files that it names may have changed."""
        self.desk.disk_changed()
        for each in self.desk.open:
            self._read_soon(each)

    def _read_soon(self, path: Path) -> None:
        running = self._reading.get(path)
        if running is None or running.done():
            self._reading[path] = asyncio.get_running_loop().create_task(self._read(path))

    async def _read(self, path: Path) -> None:
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            file = self.desk.open.get(path)
            found = await self._guarded(self.desk.analyse, path)
            if path not in self.desk.open:
                self.desk.close(path)
                return
            if found is not None:
                self._show(path)
            if self.desk.open.get(path) == file:
                break
        self._afterwards(self._follow_up(path))

    async def _follow_up(self, path: Path) -> None:
        """Do what can wait: the files that name this one, and repairs of a spec without a plan."""
        file = self.desk.open.get(path)
        for each in self.desk.dependents(path):
            if await self._guarded(self.desk.analyse, each) is not None:
                self._show(each)
                await self._refresh()
        await asyncio.sleep(_QUIET_SECONDS)
        if self.desk.open.get(path) == file and await self._guarded(self.desk.repair, path):
            self._show(path)

    async def _refresh(self) -> None:
        """Tell the editor to request hints again, if it supports that."""
        known = self.client_capabilities.workspace
        if known is not None and known.inlay_hint is not None and known.inlay_hint.refresh_support:
            await self.workspace_inlay_hint_refresh_async(None)

    async def _guarded(self, work: Callable[[Path], _Result], path: Path) -> _Result | None:
        """Do work on a file; a bug of tunec is logged, and the server continues."""
        try:
            return await self.ask(work, path)
        except Exception:  # noqa: BLE001  whatever it is, it is ours, and the editor goes on
            told = f"a bug in tunec; please report it with {path.name}\n{traceback.format_exc()}"
            message = types.LogMessageParams(types.MessageType.Error, told)
            self.window_log_message(message)
            return None

    def _afterwards(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _show(self, path: Path) -> None:
        for file, found in self.desk.to_show(path).items():
            self.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri_of(file), found, self.desk.versions.get(file))
            )

    def page(self, markdown: str) -> str:
        """Write a text to a temporary file of this process; return its URI for the editor."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="tunec-lsp-")
        file = Path(self._folder.name, "changes.md")
        file.write_text(markdown + "\n", "utf-8")
        return file.as_uri()

    # ── asking ───────────────────────────────────────────────────────────────────────────────────

    def latest(self, uri: str) -> tuple[Analysis, Text] | None:
        """The analysis of an open file, which may be older than its text, and the text."""
        path = path_of(uri)
        analysis = self.desk.seen(path) if path is not None else None
        return None if analysis is None or path is None else (analysis, self.desk.text(path))

    async def current(self, uri: str) -> tuple[Analysis, Text] | None:
        """The analysis of an open file after any running reading; None for unrelated files."""
        path = path_of(uri)
        running = self._reading.get(path) if path is not None else None
        if running is not None:
            await asyncio.shield(running)
        found = self.latest(uri)
        return found if found is not None and found[0].is_known else None


def path_of(uri: str) -> Path | None:
    """The resolved path of a file; None for a URI that is not a file."""
    found = to_fs_path(uri) if uri.startswith("file:") else None
    return None if found is None else Path(os.path.realpath(found))


def serve(version: str, registry: Registry) -> None:
    """Speak the protocol over stdin and stdout until the editor ends the session."""
    made(version, registry).start_io()


def made(version: str, registry: Registry) -> Server:
    """A server with all its handlers registered."""
    server = Server(version, registry)
    _listen(server)
    _answer(server)
    _show_structure(server)
    _mend(server)
    return server


def _listen(server: Server) -> None:
    """Register the handlers for files that are opened, edited and saved."""

    @server.feature(types.INITIALIZE)
    def initialize(ls: Server, params: types.InitializeParams) -> None:
        folders = params.workspace_folders
        root = folders[0].uri if folders else params.root_uri
        path = path_of(root) if root else None
        if path is not None and path.is_dir():
            os.chdir(path)
        agreed = ls.workspace.position_encoding or types.PositionEncodingKind.Utf16
        ls.desk.encoding = types.PositionEncodingKind(agreed).value

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        ls.changed(document.uri, document.text, document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
        for each in params.content_changes[-1:]:
            ls.changed(params.text_document.uri, each.text, params.text_document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
        ls.closed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(ls: Server, _: types.DidSaveTextDocumentParams) -> None:
        ls.disk_changed()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def on_disk(ls: Server, _: types.DidChangeWatchedFilesParams) -> None:
        ls.disk_changed()


def _answer(server: Server) -> None:
    """Register the handlers for requests about one place."""

    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=_TRIGGERS)
    )
    async def completion(
        ls: Server, params: types.CompletionParams
    ) -> list[types.CompletionItem] | None:
        found = ls.latest(params.text_document.uri)
        if found is None:
            return None
        analysis, text = found
        place = text.place(params.position)
        return await ls.ask(complete, analysis, text, *place, ls.desk.registry)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hovered(ls: Server, params: types.HoverParams) -> types.Hover | None:
        found = await ls.current(params.text_document.uri)
        if found is None:
            return None
        analysis, text = found
        told = await ls.ask(hover, analysis, *text.place(params.position))
        if told is None:
            return None
        content = types.MarkupContent(types.MarkupKind.Markdown, told[0])
        return types.Hover(content, text.range(told[1]))


def _show_structure(server: Server) -> None:
    """Register the handlers for requests about a whole file."""

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def symbols(
        ls: Server, params: types.DocumentSymbolParams
    ) -> list[types.DocumentSymbol] | None:
        found = await ls.current(params.text_document.uri)
        return None if found is None else outline.symbols(*found)

    @server.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
    async def folds(
        ls: Server, params: types.FoldingRangeParams
    ) -> list[types.FoldingRange] | None:
        found = await ls.current(params.text_document.uri)
        return None if found is None else outline.folds(*found)

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_LINK)
    async def linked(
        ls: Server, params: types.DocumentLinkParams
    ) -> list[types.DocumentLink] | None:
        found = await ls.current(params.text_document.uri)
        if found is None:
            return None
        analysis, text = found
        every = await ls.ask(lambda: list(links(analysis)))
        return [types.DocumentLink(text.range(span), uri_of(file)) for span, file in every]

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    async def definition(ls: Server, params: types.DefinitionParams) -> list[types.Location] | None:
        found = await ls.current(params.text_document.uri)
        if found is None:
            return None
        analysis, text = found
        place = text.place(params.position)
        every = await ls.ask(lambda: list(links(analysis)))
        return [location(file) for span, file in every if holds(span, *place)]

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    async def hinted(ls: Server, params: types.InlayHintParams) -> list[types.InlayHint] | None:
        found = await ls.current(params.text_document.uri)
        if found is None:
            return None
        analysis, text = found
        first, last = params.range.start.line + 1, params.range.end.line + 1
        every = await ls.ask(lambda: list(hints(analysis)))
        return [_hint(text, *each) for each in every if first <= each[0] <= last]


def _hint(text: Text, line: int, told: str, more: str) -> types.InlayHint:
    end = len(text.lines[line - 1].rstrip()) + 1 if line <= len(text.lines) else 1
    place = text.position(line, end)
    return types.InlayHint(place, told, padding_left=True, tooltip=more or None)


def _mend(server: Server) -> None:
    """Register the handlers for code actions and for the changes since the last commit."""

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions([types.CodeActionKind.QuickFix, FIX_ALL]),
    )
    async def acted(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction] | None:
        found = await ls.current(params.text_document.uri)
        if found is None:
            return None
        wanted = [str(getattr(each, "value", each)) for each in params.context.only or ()]
        return await ls.ask(actions, found[0], ls.desk.encoding, params.range, wanted)

    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    async def lenses(ls: Server, params: types.CodeLensParams) -> list[types.CodeLens] | None:
        uri = params.text_document.uri
        found = await ls.current(uri)
        told = await ls.ask(ls.desk.changes, found[0].path) if found is not None else None
        if told is None:
            return None
        start = types.Position(0, 0)
        command = types.Command(told.title, CHANGES, arguments=[uri])
        return [types.CodeLens(types.Range(start, start), command)]

    @server.command(CHANGES)
    async def changes(ls: Server, uri: str) -> str | None:
        """What `tunec diff` reports about the spec since the last commit; shown if possible."""
        path = path_of(uri)
        told = await ls.ask(ls.desk.changes, path) if path is not None else None
        if told is None:
            return None
        asked = ls.client_capabilities.window
        if asked is not None and asked.show_document is not None and asked.show_document.support:
            page = await ls.ask(ls.page, told.markdown)
            await ls.window_show_document_async(types.ShowDocumentParams(page))
        return told.markdown
