"""`tunec completion`: a shell's completion script, by the shtab library."""

from argparse import Namespace

from tunec.compiler.cli.arguments import build_parser
from tunec.compiler.cli.session import OK, Misuse, Session


def run(options: Namespace, session: Session) -> int:
    """Print the script."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise Misuse("completion scripts need shtab: pip install 'tunec[completion]'") from None
    session.result(shtab.complete(build_parser(""), shell=options.shell))
    return OK
