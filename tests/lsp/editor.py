"""An editor as the tests drive it: the real server in a process of its own, over stdio."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from tunec.schemas.source import line_starts

_Result = TypeVar("_Result")
SECONDS = 120
"""A wait that is longer has failed."""

SPEC = """\
tunec: 1
model: llama-3.1-8b
method: lora
data: {train: train.jsonl, samples: 10k, sequence: 2048}
hardware: a100-80g-x8
"""
DS = """\
{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "cpu_offload_params": true},
  "gradient_clipping": 1.0
}
"""


class Editor:
    """A client with files open; each call waits for what it asks."""

    def __init__(self, root: Path, encodings: list[str] | None = None) -> None:
        self.root = root
        self._loop = asyncio.new_event_loop()
        self._client = LanguageClient("test", "1")
        self._news = asyncio.Event()
        self.shown: dict[str, types.PublishDiagnosticsParams] = {}
        self.log: list[str] = []
        self.edits: list[types.WorkspaceEdit] = []
        self.documents: list[str] = []
        self.texts: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._count = 0
        self._listen()
        self.capabilities = self.run(self._start(encodings)).capabilities

    def run(self, work: Awaitable[_Result]) -> _Result:
        """What some work comes to."""
        return self._loop.run_until_complete(asyncio.wait_for(work, SECONDS))

    def ask(self, name: str, file: str, **more: Any) -> Any:
        """The answer to a request about a file, named as the client's method is."""
        method = getattr(self._client, f"{name}_async")
        request = types.METHOD_TO_TYPES[_METHODS[name]][0]
        parameters = request.__annotations__["params"]
        kind = getattr(types, parameters) if isinstance(parameters, str) else parameters
        document = types.TextDocumentIdentifier(self.uri(file))
        return self.run(method(kind(text_document=document, **more)))

    def command(self, command: types.Command) -> Any:
        """What the server's own command comes to."""
        arguments = types.ExecuteCommandParams(command.command, command.arguments)
        return self.run(self._client.workspace_execute_command_async(arguments))

    def open(self, file: str, text: str | None = None) -> list[types.Diagnostic]:
        """Open a file, as it is on disk or with another text; what is shown in it."""
        if text is None:
            text = (self.root / file).read_text("utf-8")
        version = self._next(file, text)
        document = types.TextDocumentItem(self.uri(file), "yaml", version, text)
        self._client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        return self.run(self._problems(file))

    def type(self, file: str, text: str) -> list[types.Diagnostic]:
        """Write another text in an open file; what is then shown in it."""
        self.edit(file, text)
        return self.run(self._problems(file))

    def edit(self, file: str, text: str) -> None:
        """Write another text in an open file, and wait for nothing."""
        version = self._next(file, text)
        document = types.VersionedTextDocumentIdentifier(version, self.uri(file))
        change = types.TextDocumentContentChangeWholeDocument(text)
        self._client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def _next(self, file: str, text: str) -> int:
        """The version of a file's new text: no two of any file have the same."""
        self._count += 1
        self.texts[file], self._versions[file] = text, self._count
        return self._count

    def close(self, file: str) -> None:
        """Close a file."""
        document = types.TextDocumentIdentifier(self.uri(file))
        self._client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of what is shown."""
        self.run(self._until(holds))

    def problems(self, file: str) -> list[types.Diagnostic]:
        """What is shown in a file now."""
        found = self.shown.get(self.uri(file))
        return list(found.diagnostics) if found is not None else []

    def after(self, file: str, words: str) -> types.Position:
        """The place behind some words of a file."""
        text = self.texts[file]
        at = text.index(words) + len(words)
        starts = line_starts(text)
        line = max(n for n, start in enumerate(starts) if start <= at)
        return types.Position(line, len(text[starts[line] : at].encode("utf-16-le")) // 2)

    def leave(self) -> int:
        """Shut the server down, and return its exit code."""
        self.run(self._client.shutdown_async(None))
        self._client.exit(None)
        server = self._client._server
        code: int = self.run(server.wait())
        self.run(self._client.stop())
        self._loop.close()
        return code

    @property
    def pid(self) -> int:
        """The server's process."""
        return int(self._client._server.pid)

    def uri(self, file: str) -> str:
        """A file as the protocol names it."""
        return (self.root / file).resolve().as_uri()

    async def _start(self, encodings: list[str] | None) -> types.InitializeResult:
        await self._client.start_io(sys.executable, "-m", "tunec", "lsp", "--stdio")
        capabilities = types.ClientCapabilities(
            general=types.GeneralClientCapabilities(position_encodings=encodings),
            window=types.WindowClientCapabilities(
                show_document=types.ShowDocumentClientCapabilities(support=True)
            ),
        )
        found = await self._client.initialize_async(
            types.InitializeParams(capabilities, root_uri=self.root.resolve().as_uri())
        )
        self._client.initialized(types.InitializedParams())
        return found

    async def _problems(self, file: str) -> list[types.Diagnostic]:
        uri, version = self.uri(file), self._versions[file]
        await self._until(lambda: uri in self.shown and self.shown[uri].version == version)
        return list(self.shown[uri].diagnostics)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._news.clear()
            await self._news.wait()

    def _listen(self) -> None:
        @self._client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def shown(params: types.PublishDiagnosticsParams) -> None:
            self.shown[params.uri] = params
            self._news.set()

        @self._client.feature(types.WINDOW_LOG_MESSAGE)
        def logged(params: types.LogMessageParams) -> None:
            self.log.append(params.message)
            self._news.set()

        @self._client.feature(types.WINDOW_SHOW_DOCUMENT)
        def document(params: types.ShowDocumentParams) -> types.ShowDocumentResult:
            self.documents.append(params.uri)
            self._news.set()
            return types.ShowDocumentResult(success=True)


_METHODS = {
    "text_document_completion": types.TEXT_DOCUMENT_COMPLETION,
    "text_document_hover": types.TEXT_DOCUMENT_HOVER,
    "text_document_code_action": types.TEXT_DOCUMENT_CODE_ACTION,
    "text_document_inlay_hint": types.TEXT_DOCUMENT_INLAY_HINT,
    "text_document_definition": types.TEXT_DOCUMENT_DEFINITION,
    "text_document_document_symbol": types.TEXT_DOCUMENT_DOCUMENT_SYMBOL,
    "text_document_folding_range": types.TEXT_DOCUMENT_FOLDING_RANGE,
    "text_document_document_link": types.TEXT_DOCUMENT_DOCUMENT_LINK,
    "text_document_code_lens": types.TEXT_DOCUMENT_CODE_LENS,
}
