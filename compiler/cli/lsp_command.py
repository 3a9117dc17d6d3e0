"""`tunec lsp`: the language server, for editors."""

from argparse import Namespace
from importlib.util import find_spec

from tunec.compiler.cli.session import OK, Misuse, Session
from tunec.compiler.version import __version__


def run(options: Namespace, session: Session) -> int:  # noqa: ARG001  it takes no options
    """Speak the language server protocol over stdin and stdout."""
    if find_spec("pygls") is None:
        raise Misuse("the language server needs pygls: pip install 'tunec[lsp]'")
    from tunec.compiler.lsp.server import serve

    serve(__version__, session.registry)
    return OK
