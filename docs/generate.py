"""Writes the pages that are derived from the code and its tables.

`python -m docs.generate` writes the pages; with `--check` it writes nothing, names the stale pages
and exits with status 1 if there are any. In README.md, the text below a `$` in a `console` block is
derived: it is the output of the command. In ARCHITECTURE.md, the picture is derived.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from runpy import run_path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from docs.card_page import card_page
from docs.denoiser_page import denoiser_page
from docs.false_alarms_page import false_alarms_page, records
from docs.gaps import gaps
from docs.memory_pictures import methods, phases
from docs.picture import architecture
from docs.readme import ROOT, CommandFailed, readme
from docs.refusal_shares import refusal_shares

from tunec.compiler.cli.arguments import build_parser
from tunec.compiler.diagnostics.codes import AREAS, known_codes, known_names, title
from tunec.compiler.frontend.json_schema import SCHEMAS, schema_text
from tunec.compiler.frontend.spec_page import (
    HEAD,
    INTRODUCTION,
    QUANTITIES,
    about,
    own_fields,
    rows,
    sections,
)
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.lints.index import RECORDS, rule_page_path, rule_title, rules, subject
from tunec.compiler.lints.rule import CONSEQUENCES, Rule
from tunec.compiler.passes.defaults import DEFAULTS
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.compiler.target import Cannot, Entry, Target, in_no_plan
from tunec.schemas.source import dotted
from tunec.targets.registry import TARGETS

_MADE: Final = "<!-- made by docs/generate.py; `just generate` renews it -->"

Rows = Iterable[Sequence[str]]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the files below `root`, or with `--check` compare them; return the exit status.

    Nothing is derived while an addition is unfinished: its gaps are reported instead.
    """
    parser = argparse.ArgumentParser(prog="python -m docs.generate")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    options = parser.parse_args(arguments)
    missing = gaps()
    sys.stderr.write("".join(map(str, missing)))
    if missing:
        return 1
    try:
        made = derived()
    except CommandFailed as failed:
        sys.stderr.write(f"{failed}\n")
        return 1
    stale = {path: text for path, text in made.items() if _text_at(root / path) != text}
    for path, text in stale.items():
        if not options.check:
            (root / path).write_text(text, "utf-8")
        sys.stderr.write(f"{'stale' if options.check else 'written'}: {path}\n")
    return 1 if options.check and stale else 0


def derived() -> dict[str, str]:
    """The expected text of each derived file, by its path in the repository."""
    schemas = {f"schemas/json/tunec/{name}.json": schema_text(name) for name in SCHEMAS}
    return {path: make() for path, make in _DERIVED.items()} | schemas


def _text_at(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────────


def _page(heading: str, *parts: str) -> str:
    return "\n\n".join((_MADE, f"# {heading}", *parts)) + "\n"


def _table(head: Sequence[str], rows: Rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


# ── docs/cli.md ──────────────────────────────────────────────────────────────────────────────────


def cli_page() -> str:
    """Every command with its arguments, as the parser has them."""
    parser = build_parser("VERSION")
    commands = _subparsers(parser)
    intro = (
        "Results go to stdout, diagnostics to stderr. Exit codes: 0 success, 1 fault in the "
        "input, 2 wrong usage, 70 bug in tunec."
    )
    return _page("The command line", intro, *(_command(each) for each in commands.values()))


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = (each.choices for each in parser._actions)  # noqa: SLF001
    return next(choices for choices in found if isinstance(choices, dict))


def _command(parser: argparse.ArgumentParser) -> str:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    asked = [each for each in parser._actions if each.dest != "help"]  # noqa: SLF001
    rows = [(_code(_spelling(each)), each.help or "") for each in asked]
    parts = [
        f"## `{parser.prog}`",
        parser.description or "",
        f"```text\n{usage}\n```",
        _table(("argument", "meaning"), rows),
        f"```text\n{parser.epilog}\n```" if parser.epilog else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _spelling(action: argparse.Action) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = str(action.metavar or choices or action.dest)
    if not action.option_strings:
        return value
    takes = "" if action.nargs == 0 else f" {value}"
    return ", ".join(action.option_strings) + takes


# ── docs/slots.md ────────────────────────────────────────────────────────────────────────────────


def slots_page() -> str:
    """Every slot with its type, its meaning and the pass that decides it."""
    passes = _table(
        ("pass", "reads", "decides", "what it does"),
        (
            (
                _code(each.name),
                ", ".join(map(_code, each.reads)),
                ", ".join(map(_code, each.decides)),
                each.contract,
            )
            for each in PIPELINE
        ),
    )
    intro = (
        "A slot is one thing that can be decided. Any of them can be pinned: `pin: {zero.stage: "
        "2}`. `tunec explain SPEC SLOT` says why a slot has its value in one spec."
    )
    groups = (_group(name, shape) for name, shape in GROUPS.items())
    return _page("Slots", intro, "## Passes, in order", passes, *groups)


def _group(name: str, shape: type[Any]) -> str:
    decided = next(each.name for each in PIPELINE if name in each.decides)
    rows = (
        (_code(slot.path), _type(slot.type), slot.unit, slot.doc)
        for slot in SLOTS.values()
        if slot.group == name
    )
    table = _table(("slot", "type", "unit", "meaning"), rows)
    return f"## `{name}`\n\n{shape.__doc__} Decided by `{decided}`.\n\n{table}"


def _type(kind: Any) -> str:
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(_code(str(word)) for word in inside)
    if origin in (Union, UnionType):
        return " or ".join(_type(each) for each in inside)
    if origin is tuple:
        several = inside[-1] is Ellipsis
        return f"list of {_type(inside[0])}" if several else "=".join(map(_type, inside))
    words = {int: "whole number", float: "number", bool: "yes or no", str: "text"}
    return words.get(kind, "none")


# ── docs/spec.md ──────────────────────────────────────────────────────────────────────────────────


def spec_page() -> str:
    """Every field of a spec, part by part."""
    quantities = _table(("quantity", "written as"), QUANTITIES.items())
    parts = (
        f"## {_code(dotted(path)) or 'A spec'}\n\n{about(shape)}\n\n"
        + _table(HEAD, rows(path, shape))
        for path, shape in sections()
        if own_fields(shape)
    )
    return _page("The spec", *INTRODUCTION, "## Quantities", quantities, *parts)


# ── docs/targets.md ──────────────────────────────────────────────────────────────────────────────


def targets_page() -> str:
    """The files and versions of each target, and the key for each slot."""
    targets = [TARGETS[name] for name in TARGETS]
    intro = (
        "A dot means that the target has no key for the slot; its reasons stand below. Whether a "
        "value can be said depends on the value and the version too: emission checks each row "
        "both ways and reports what cannot be said."
    )
    return _page(
        "Targets",
        _table(("target", "versions", "latest", "files", "needs"), map(_target_row, targets)),
        "## Which slot each target can say",
        intro,
        _table(("slot", *(each.name for each in targets)), _support(targets)),
        *(_target_section(each) for each in targets),
    )


def _target_row(target: Target) -> Sequence[str]:
    needs = ", ".join(f"`{slot}: {value}`" for slot, value in target.requires.items())
    names = dict.fromkeys(file.name for file in target.files)
    versions = f"{target.package} {target.supported}"
    return (_code(target.name), versions, target.latest, ", ".join(map(_code, names)), needs)


def _support(targets: Sequence[Target]) -> Iterator[Sequence[str]]:
    said = [_slots_of(each) for each in targets]
    for path in SLOTS:
        yield (_code(path), *("yes" if path in each else "·" for each in said))


def _slots_of(target: Target) -> frozenset[str]:
    return frozenset(slot for entry in _entries(target) for slot in entry.slots)


def _entries(target: Target) -> Iterator[Entry]:
    for file in target.files:
        yield from file.entries


def _target_section(target: Target) -> str:
    files = (
        f"### `{file.name}`\n\n"
        + _table(("key", "slots", "versions", "source"), dict.fromkeys(map(_entry, file.entries)))
        for file in target.files
    )
    cannot = _table(
        ("slot", "why not", "otherwise"),
        ((_code(slot), why.reason, _otherwise(why)) for slot, why in target.cannot.items()),
    )
    return "\n\n".join((f"## {target.name}", *files, "### What it has no key for", cannot))


def _otherwise(why: Cannot) -> str:
    if why.loses:
        return "an error"
    return "nothing says it" if why.elsewhere is in_no_plan else "another file says it"


def _entry(entry: Entry) -> tuple[str, ...]:
    keys = ", ".join(map(_code, entry.keys)) or "(default)"
    since = f"from {entry.since}" if entry.since else ""
    until = f"before {entry.until}" if entry.until else ""
    versions = " ".join(part for part in (entry.package, since, until) if part)
    return (keys, ", ".join(map(_code, entry.slots)), versions, entry.source)


# ── docs/defaults.md ─────────────────────────────────────────────────────────────────────────────


def defaults_page() -> str:
    """The defaults of everything that a spec does not set."""
    intro = (
        "What is taken if a spec sets nothing, with its condition and its source. Of several "
        "learning rates for a method, the one of the largest size below the model's holds. What "
        "follows from a sum (engine, micro batch, steps) is no default: `tunec explain` tells it."
    )
    rows = ((_code(each.slot), _shown(each.value), each.when, each.source) for each in DEFAULTS)
    return _page("Defaults", intro, _table(("slot", "value", "when", "source"), rows))


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# ── docs/codes.md ────────────────────────────────────────────────────────────────────────────────


def codes_page() -> str:
    """Every code with its title, by area; then every note and warning of a compilation."""
    rows = ((_linked(code), AREAS[code[:3]], title(code)) for code in known_codes())
    names = ((_linked(name), "note or warning", title(name)) for name in known_names())
    intro = "`tunec explain CODE` prints a page, with an example and the way to fix it."
    table = _table(("code", "area", "what it says"), (*rows, *names))
    return _page("Diagnostic codes", intro, table)


def _linked(code: str) -> str:
    return f"[{code}](../compiler/diagnostics/pages/{code}.md)"


# ── docs/rules.md ────────────────────────────────────────────────────────────────────────────────


def rules_page() -> str:
    """Every rule of `tunec lint`, by subject."""
    every = [(subject(each.name), each) for each in rules()]
    intro = (
        f"{len(every)} rules. `tunec explain NAME` prints a page, with examples that are run as "
        "tests; `tunec lint FILE...` reads existing files together and says what breaks them."
    )
    sections = []
    for name in dict.fromkeys(sorted(each for each, _ in every)):
        held = [each for subject_, each in every if subject_ == name]
        head = ("rule", "severity", "what happens", "what it says")
        table = _table(head, map(_rule_row, held))
        sections.append(f"## {name.replace('_', ' ')}\n\n{table}")
    return _page("Rules", intro, _REFUSALS, _shares(), "\n".join(sections))


_REFUSALS: Final = (
    "Rules are held to the checks of the programs themselves: every place in their validators that "
    "refuses is listed (`tests/lints/data/refusal_sites`), with the reason where no file shows it. "
    "It counts as found where a file is kept that lint finds and that the program refuses there; "
    "it is asked wherever what it needs can be installed."
)


def _shares() -> str:
    head = ("program", "places that refuse", "a file shows", "lint finds", "asked", "share found")
    return _table(head, refusal_shares())


def _rule_row(found: Rule) -> tuple[str, ...]:
    page = f"../{rule_page_path(found.name)}"
    what = CONSEQUENCES[found.consequence]
    return (f"[{found.name}]({page})", found.severity, what, rule_title(found.name))


# ── what is derived ──────────────────────────────────────────────────────────────────────────────

# ── docs/time-accuracy.md ────────────────────────────────────────────────────────────────────────


def _measured(name: str) -> str:
    """A text that stands with the published step times, made by its function of this name."""
    made: str = run_path(str(ROOT / "tests/analyses/time/page.py"))[name]()
    return made


_DERIVED: Final[Mapping[str, Callable[[], str]]] = {
    "README.md": readme,
    "ARCHITECTURE.md": architecture,
    "docs/cli.md": cli_page,
    "docs/spec.md": spec_page,
    "docs/slots.md": slots_page,
    "docs/targets.md": targets_page,
    "docs/defaults.md": defaults_page,
    "docs/codes.md": codes_page,
    "docs/rules.md": rules_page,
    "docs/derived-cards.md": card_page,
    "docs/derived-denoisers.md": denoiser_page,
    "docs/false-alarms.md": false_alarms_page,
    RECORDS: records,
    "docs/time-accuracy.md": partial(_measured, "page"),
    "compiler/analyses/time/accuracy.py": partial(_measured, "figures"),
    "docs/guide/memory-phases.svg": phases,
    "docs/guide/memory-methods.svg": methods,
}


if __name__ == "__main__":
    sys.exit(main())
