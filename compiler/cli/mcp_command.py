"""`tunec mcp`: the commands as tools of the Model Context Protocol, over stdin and stdout."""

import os
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from tunec.compiler.cli.main import answer
from tunec.compiler.cli.session import OK, Misuse, Session
from tunec.compiler.version import __version__

if TYPE_CHECKING:
    from tunec.compiler.mcp.server import Done


def run(options: Namespace, session: Session) -> int:
    """Serve until the client disconnects."""
    if find_spec("mcp") is None:
        raise Misuse("the server needs the package mcp: pip install 'tunec[mcp]'")
    root = Path(options.directory)
    if not root.is_dir():
        raise Misuse(f"{root} is no directory")
    from tunec.compiler.mcp.server import Done, server

    def run_command(words: Sequence[str]) -> "Done":
        out, err = StringIO(), StringIO()
        inner = Session(session.registry, "json", out, err)
        with redirect_stderr(err):
            code = answer(words, inner, __version__)
        return Done(code, out.getvalue(), err.getvalue())

    os.chdir(root)  # paths are given and shown from there
    server(run_command, Path(), __version__).run()
    return OK
