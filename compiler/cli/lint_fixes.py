"""`tunec lint --fix`: fixes that are applied, shown as a diff, or left to a person."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Final

from tunec.compiler.cli.session import Misuse, Session
from tunec.compiler.diagnostics.terminal import printable_lines
from tunec.compiler.lints.lint import Linted
from tunec.compiler.writing import write_all

_ROUNDS: Final = 20


def check_options(options: Namespace) -> None:
    """Raise Misuse for options about fixes without --fix."""
    if (options.unsafe or options.diff) and not options.fix:
        raise Misuse(f"--{'unsafe' if options.unsafe else 'diff'} goes with --fix")
    if options.diff and options.format != "text":
        raise Misuse(f"--diff prints a diff, and no {options.format}")


def mend(
    linted: Linted, again: Callable[[], Linted], options: Namespace, session: Session
) -> Linted:
    """Apply fixes until none is left: two fixes of one place need two rounds."""
    changed: dict[Path, None] = {}
    for _ in range(_ROUNDS):
        texts = linted.fixed(unsafe=options.unsafe)
        written = write_all({_behind(Path(name)): text for name, text in texts.items()})
        if not written:
            break
        changed |= dict.fromkeys(written)
        linted = again()
    if changed:
        session.note(f"fixed {', '.join(map(str, changed))}")
    return linted


def _behind(path: Path) -> Path:
    """The file that a symbolic link points to; the link itself stays."""
    return path.resolve() if path.is_symlink() else path


def show(linted: Linted, options: Namespace, session: Session) -> None:
    """Print the fixes that were not applied as a diff, and how to apply them."""
    if session.format == "text":
        session.write("".join(map(_printable, diff_of(linted.sources, linted.fixed(unsafe=True)))))
    safe, left = len(linted.fixes("safe")), len(linted.fixes("unsafe"))
    if options.diff and safe:
        session.note(f"nothing was written: --fix alone applies the safe ones ({safe})")
    if left and not options.unsafe:
        session.note(f"fixes that change what is trained: {left}; --fix --unsafe applies them")


def _printable(line: str) -> str:
    """A line without control characters, which `patch` still accepts."""
    end = "\r\n" if line.endswith("\r\n") else "\n"
    return "\t".join(map(printable_lines, line.removesuffix(end).split("\t"))) + end


def diff_of(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """The changes of each file as a unified diff."""
    for name in sorted(new):
        before, after = (text.splitlines(keepends=True) for text in (old[name], new[name]))
        for line in unified_diff(before, after, f"a/{name}", f"b/{name}"):
            yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
