"""The missing parts of an addition: each gap with its place and the text to write there.

`python -m docs.generate` looks for gaps first, so that the author of a slot, a pass, a target, a
rule or a code sees the next step at once.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from docs.new_rule import unwritten
from docs.readme import ROOT
from packaging.version import Version

from tunec.compiler.diagnostics.codes import AREAS, known_ids
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.ir.extra import SLOT as EXTRA
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.lints.index import FOLDERS, rule_names
from tunec.compiler.lints.rule import Rule
from tunec.compiler.passes.contract import Pass
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.compiler.resolve import resolve
from tunec.compiler.target import Target
from tunec.targets.registry import FURTHER, READERS, TARGETS

_SPEC: Final = "examples/five-lines/spec.yaml"
_CODE: Final = re.compile(r'"(E\d{4})"')


class Gap(NamedTuple):
    """A missing part, its place, and the text to write there."""

    place: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}\n  {self.remedy}\n"


def gaps() -> tuple[Gap, ...]:
    """All gaps, in the order in which they are best filled."""
    found = (*groups(), *decisions(), *passes(), *targets(), *slots(), *codes(), *rules(), *texts())
    return tuple(dict.fromkeys(found))


# ── slots and passes ─────────────────────────────────────────────────────────────────────────────


def groups() -> Iterator[Gap]:
    """Groups of slots that a plan does not hold, or that no pass or more than one pass decides."""
    for group, shape in GROUPS.items():
        if group not in Plan.__struct_fields__:
            what = f"no plan holds the group `{group}`"
            remedy = f"add `{group}: {shape.__name__}` to `Plan`; to `Draft` if a pass reads it"
            yield Gap("compiler/ir/plan.py", what, remedy)
        who = [each.name for each in PIPELINE if group in each.decides]
        if len(who) != 1:
            told = "are decided by no pass" if not who else f"are decided by {' and '.join(who)}"
            remedy = f'let one pass declare "{group}" among what it decides'
            yield Gap("compiler/passes/pipeline.py", f"the slots of `{group}` {told}", remedy)


def decisions() -> Iterator[Gap]:
    """Slots that a pass leaves out of its groups, for the first pass that leaves any out."""
    loaded = load_spec(ROOT / _SPEC)
    if loaded.spec is None:
        raise ValueError(loaded.diagnostics)
    facts, draft = resolve(loaded.spec, loaded.base), Draft({})
    for each in PIPELINE:
        outcome = each.run(facts, draft)
        own = {path for path, slot in SLOTS.items() if slot.group in each.decides}
        yield from (_undecided(path, each) for path in sorted(own - set(outcome.values)))
        if own != set(outcome.values):
            return
        draft = draft.with_groups(each.groups(outcome, facts))


def _undecided(path: str, each: Pass) -> Gap:
    place = f"{each.run.__module__.removeprefix('tunec.').replace('.', '/')}.py"
    what = f"the pass {each.name} decides the group of the slot `{path}`, and not the slot"
    return Gap(place, what, f'add `scribe.say("{path}", value, reason)`')


def passes() -> Iterator[Gap]:
    """Passes that do not run, or whose docstring does not begin with a sentence of one line."""
    run = {each.run.__name__ for each in PIPELINE}
    for file in sorted((ROOT / "compiler/passes").glob("*.py")):
        for name in _pass_functions(file):
            if name not in run:
                remedy = "add a `Pass(...)` with what it reads and decides to PIPELINE"
                yield Gap("compiler/passes/pipeline.py", f"`{name}` is in no pipeline", remedy)
    for each in PIPELINE:
        if not each.contract.endswith("."):
            place = f"compiler/passes/{each.run.__name__}.py"
            yield Gap(
                place, "it has no contract", "begin its docstring with one sentence in a line"
            )


def _pass_functions(file: Path) -> Iterator[str]:
    """The functions of a module that have the signature of a pass."""
    for each in ast.parse(file.read_text("utf-8")).body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            takes = [ast.unparse(a.annotation) for a in each.args.args if a.annotation]
            gives = ast.unparse(each.returns) if each.returns else ""
            if (takes, gives) == (["Facts", "Draft"], "Outcome"):
                yield each.name


# ── targets ──────────────────────────────────────────────────────────────────────────────────────


def targets() -> Iterator[Gap]:
    """Folders of targets that are not in the registry."""
    known = {*TARGETS.modules.values(), *READERS.values(), *FURTHER.values()}
    for file in sorted((ROOT / "targets").glob("*/target.py")):
        module = f"tunec.targets.{file.parent.name}.target"
        if module not in known:
            what, name = f"`{file.parent.name}` is not registered", file.parent.name
            remedy = f'add `"{name.replace("_", "-")}": "{module}"` to its table'
            yield Gap("targets/registry.py", what, remedy)


def slots() -> Iterator[Gap]:
    """Slots that a target does not cover: no row has the slot, and `cannot` gives no reason."""
    silent: dict[str, list[str]] = {}
    for name in TARGETS:
        for slot, where in _unsaid(TARGETS[name]).items():
            silent.setdefault(slot, []).append(name + where)
    for slot, who in silent.items():
        yield Gap(
            "targets",
            f"the slot `{slot}` is neither written nor refused by {', '.join(who)}",
            "in each of them, add a row that says it to a file (`same` and its like in "
            f'compiler/target.py), or `"{slot}": Cannot(reason)` to what it `cannot`',
        )
    for name in TARGETS:
        for slot in sorted(_named(TARGETS[name]) - set(SLOTS)):
            what = f"{name} names the slot `{slot}`, which does not exist"
            yield Gap(
                f"targets/{name.replace('-', '_')}", what, "name one of `tunec catalog slots`"
            )


def _unsaid(target: Target) -> Mapping[str, str]:
    """The slots that a target does not cover, each with the releases that lack it."""
    found: dict[str, list[str]] = {}
    for release in target.releases:
        said = target.sayable(target.dialect(Version(release)))
        for slot in SLOTS.keys() - said - target.cannot.keys() - {EXTRA}:
            found.setdefault(slot, []).append(release)
    every = len(target.releases)
    return {s: "" if len(at) == every else f"@{', '.join(at)}" for s, at in sorted(found.items())}


def _named(target: Target) -> set[str]:
    rows = (slot for file in target.files for entry in file.entries for slot in entry.slots)
    return {*rows, *target.cannot}


# ── pages ────────────────────────────────────────────────────────────────────────────────────────


def codes() -> Iterator[Gap]:
    """Codes of diagnostics in the source that have no page, or no area."""
    for folder in ("compiler", "schemas", "targets"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for code in _CODE.findall(file.read_text("utf-8")):
                if code not in known_ids():
                    yield Gap(
                        f"compiler/diagnostics/pages/{code}.md",
                        f"{file.relative_to(ROOT).as_posix()} reports {code}, which has no page",
                        "write it as its neighbours are: `# CODE: title`, an example that `fails`, "
                        "and the same `fixed`",
                    )
    for code in known_ids():
        if code.startswith("E") and code[:3] not in AREAS:
            what = f"{code} is of an area that has no name"
            yield Gap("compiler/diagnostics/codes.py", what, f'add "{code[:3]}" to AREAS')


def rules() -> Iterator[Gap]:
    """Rules without a page beside them, and pages without a rule."""
    found: dict[str, Path] = {}
    for folder in FOLDERS:
        for file in sorted(ROOT.glob(f"{folder}/[!_]*.py")):
            found |= dict.fromkeys(_rules_of(file.relative_to(ROOT)), file.parent)
    for name, beside in found.items():
        page = beside.relative_to(ROOT) / f"{name}.md"
        if not (ROOT / page).is_file():
            what = f"the rule `{name}` has no page, so that nothing asks it"
            yield Gap(page.as_posix(), what, "write it: `just new-rule` shows how one is laid out")
    for name in sorted(set(rule_names()) - found.keys()):
        what = f"the page `{name}.md` has no rule"
        yield Gap("compiler/lints", what, f'write `@rule("{name}", ...)` in a module beside it')


def texts() -> Iterator[Gap]:
    """The texts that `just new-rule` left for the author of a rule."""
    yield from (Gap(place, "this is still to be written", what) for place, what in unwritten())


@cache
def _rules_of(file: Path) -> tuple[str, ...]:
    """The names of the rules of a module, given by its path in the repository."""
    module = import_module(".".join(("tunec", *file.with_suffix("").parts)))
    return tuple(each.name for each in vars(module).values() if isinstance(each, Rule))
