"""Entry of the command line: dispatch, exit codes, and the report of a bug."""

import gc
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module

from tunec.compiler.cli.arguments import build_parser, parsed
from tunec.compiler.cli.session import (
    BUG,
    INPUT,
    OK,
    USAGE,
    Misuse,
    Registry,
    Session,
    UnwritableOutput,
    standard,
)
from tunec.compiler.diagnostics.wording import shortened
from tunec.compiler.writing import Unwritable
from tunec.schemas.entries import BrokenEntry

_REPORT = "this is a bug in tunec; please report it with the command, the spec and the lines above"


def run(arguments: Sequence[str], registry: Registry, version: str) -> int:
    """Run one command; return the exit code. Only argparse's own --help and usage errors exit."""
    options = parsed(build_parser(version, arguments[0] if arguments else None), arguments)
    return _answer(options, standard(registry, getattr(options, "format", "text")))


def answer(arguments: Sequence[str], session: Session, version: str) -> int:
    """Run one command within another, on the streams of a session; return the exit code."""
    try:
        options = parsed(build_parser(version, arguments[0]), arguments)
    except SystemExit as left:
        return USAGE if left.code else OK
    return _answer(options, session)


def _answer(options: Namespace, session: Session) -> int:
    """Run a command; report what prevents its success, and return the exit code."""
    try:
        return _dispatch(options, session)
    except (Misuse, Unwritable) as misuse:
        session.note(f"tunec {options.command}: {misuse}")
        return USAGE
    except BrokenEntry as broken:
        from tunec.compiler.frontend.document import faults_of

        return session.refuse(*faults_of(broken))
    except BrokenPipeError:
        # the reader went away (`tunec plan | head`): nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INPUT
    except KeyboardInterrupt:
        return 130
    except UnwritableOutput as fault:
        session.note(f"tunec {options.command}: cannot write to stdout: {fault}")
        return USAGE
    except Exception as fault:  # noqa: BLE001  whatever it is, it is ours, or the machine's
        if isinstance(fault, OSError) and fault.filename:
            named = shortened(os.fsdecode(fault.filename))
            session.note(f"tunec {options.command}: cannot use {named}: {fault.strerror}")
            return USAGE
        traceback.print_exc(file=session.stderr)
        session.note(_REPORT)
        return BUG


def collect_seldom() -> None:
    """Collect garbage rarely, since most objects of a command live until it ends.

    A plan makes some hundred lasting objects and no cycles. With Python's default threshold of 700,
    scanning the lasting objects again and again took a quarter of the time of planning.
    """
    gc.freeze()
    gc.set_threshold(100_000)
    gc.enable()


def _dispatch(options: Namespace, session: Session) -> int:
    """Import only the requested command's module, since the others cost start-up time."""
    module = import_module(f"tunec.compiler.cli.{options.command}_command")
    collect_seldom()
    code: int = module.run(options, session)
    return code
