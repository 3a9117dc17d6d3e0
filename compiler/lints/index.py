"""Every rule by name; a folder's modules are imported when one of its rules is first needed.

And what is known of a rule by its name: what it is about, and its record in public repositories.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.codes import known_names
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import nearest_one, nearly
from tunec.compiler.lints.environment import split_requirement
from tunec.compiler.lints.rule import ALWAYS, Rule
from tunec.schemas.caches import cached
from tunec.schemas.source import dotted

_ROOT: Final = Path(__file__).parents[2]
_PACKAGE: Final = __package__.partition(".")[0]
FOLDERS: Final = ("compiler/lints/checks/*", "targets/*/rules")
"""Folders of rules about several programs, by subject, and of rules about one target."""

_READERS: Final[Mapping[str, frozenset[str]]] = {
    "ai_toolkit": frozenset({"ai-toolkit"}),
    "axolotl": frozenset({"axolotl"}),
    "deepspeed": frozenset({"deepspeed"}),
    "glm4": frozenset({"glm4"}),
    "llama_cookbook": frozenset({"llama-cookbook"}),
    "llamafactory": frozenset({"axolotl", "llamafactory", "simpletuner"}),
    "nemo_automodel": frozenset({"nemo-automodel"}),
    "musubi_tuner": frozenset({"musubi-tuner", "musubi-tuner-data"}),
    "openrlhf": frozenset({"openrlhf", "openrlhf-ppo", "openrlhf-rm"}),
    "scripts": frozenset({"alpaca-lora", "diffusers"}),
    "sd_scripts": frozenset({"sd-scripts", "sd-scripts-data", "musubi-tuner"}),
    "simpletuner": frozenset({"diffusers", "lycoris", "simpletuner", "simpletuner-data"}),
    "torchtune": frozenset({"torchtune"}),
    "visualglm": frozenset({"sat"}),
}
"""Subjects that only concern runs with a document of one of these kinds."""
_DEEPSPEED_ALONE: Final = frozenset({"deepspeed"})
_OF_TRAINERS: Final = frozenset(
    {"accelerate", "adapter", "fsdp", "huggingface", "launch", "quantization", "trl", "vision"}
)
"""Subjects that do not concern a file that DeepSpeed reads alone."""


@cached()
def _pages() -> Mapping[str, Path]:
    """The page of each rule, `<name>.md` beside its module: every rule has one."""
    found = (page for folder in FOLDERS for page in _ROOT.glob(f"{folder}/*.md"))
    return {page.stem: page for page in sorted(found, key=lambda each: each.stem)}


@cached()
def _folders() -> Mapping[str, Path]:
    """The folder of each subject, by the name of the subject or the target."""
    return {_subject_of(folder): folder for folder in {page.parent for page in _pages().values()}}


def _subject_of(folder: Path) -> str:
    return folder.parent.name if folder.name == "rules" else folder.name


@cached()
def rules_of(subject: str) -> Mapping[str, Rule]:
    """The rules of a folder by name."""
    folder = _folders()[subject]
    package = ".".join((_PACKAGE, *folder.relative_to(_ROOT).parts))
    names = (each.stem for each in sorted(folder.glob("[!_]*.py")))
    modules = (import_module(f"{package}.{name}") for name in names)
    values = (each for module in modules for each in vars(module).values())
    return {each.name: each for each in values if isinstance(each, Rule)}


def rule_names() -> tuple[str, ...]:
    """The names of all rules, sorted."""
    return tuple(_pages())


def is_rule(name: str) -> bool:
    """Whether a rule has the given name."""
    return name in _pages()


def rule(name: str) -> Rule:
    """The rule of a name; raise KeyError if there is none."""
    return rules_of(subject(name))[name]


@cached()
def rules() -> tuple[Rule, ...]:
    """Every rule, sorted by name."""
    return tuple(map(rule, rule_names()))


def rules_for(kinds: frozenset[str], written: Iterable[str]) -> tuple[Rule, ...]:
    """The rules that may concern documents of some kinds, sorted by name.

    `written` contains the documents' keys, as in `LintContext.keys`.
    """
    readers = _readers(kinds)
    asked = {name: rule for key in (*ALWAYS, *written) for name, rule in readers.get(key, ())}
    return tuple(asked[name] for name in sorted(asked))


def rules_of_kinds(kinds: frozenset[str]) -> Iterator[Rule]:
    """The rules of every subject that may concern documents of these kinds."""
    subjects = (each for each in sorted(_folders()) if _speaks(each, kinds))
    return (rule for subject in subjects for rule in rules_of(subject).values())


@cached()
def _readers(kinds: frozenset[str]) -> Mapping[str, tuple[tuple[str, Rule], ...]]:
    """The rules for some kinds, with their names, by each key that they read."""
    found = dict[str, dict[str, Rule]]()
    for rule in rules_of_kinds(kinds):
        for key in rule.reads:
            found.setdefault(key, {})[rule.name] = rule
    return {key: tuple(each.items()) for key, each in found.items()}


def _speaks(subject: str, kinds: frozenset[str]) -> bool:
    if subject in _OF_TRAINERS:
        return kinds != _DEEPSPEED_ALONE
    return subject not in _READERS or not kinds.isdisjoint(_READERS[subject])


def subject(name: str) -> str:
    """The subject of a rule, or its target."""
    return _subject_of(_pages()[name].parent)


def rule_page_path(name: str) -> str:
    """The path of a rule's page, relative to the root."""
    return _pages()[name].relative_to(_ROOT).as_posix()


def rule_page(name: str) -> str:
    """The page of a rule, as Markdown; raise KeyError if there is none."""
    return _pages()[name].read_text("utf-8")


def rule_title(name: str) -> str:
    """A rule's title: the heading of its page, without the name."""
    return rule_page(name).partition("\n")[0].removeprefix(f"# {name}: ")


ENGINES: Final = frozenset({"accelerate", "bash", "deepspeed", "nccl", "slurm", "torch"})
"""What reads its file or its command itself, whichever program is started."""


def is_of_engines(name: str) -> bool:
    """Whether a rule is about what engines, launchers or the shell read, whoever trains."""
    return (
        is_rule(name) and {split_requirement(each)[0] for each in rule(name).consumers} <= ENGINES
    )


def is_of_shell(name: str) -> bool:
    """Whether a rule is about what the shell reads, whatever program it then starts."""
    return is_rule(name) and {*rule(name).consumers} == {"bash"}


def is_of_jobs(name: str) -> bool:
    """Whether a rule rests on what a script says to Slurm."""
    return is_rule(name) and any(each.startswith("slurm:") for each in rule(name).reads)


def is_of_runs(name: str) -> bool:
    """Whether a rule is about what a trainer does with a file, and so about runs of it alone."""
    return name not in _WHEREVER and not is_of_engines(name)


_WHEREVER: Final = ("missing-file", "secret-in-file")
_LIKE: Final = 0.8
_MOST_COMPARED: Final = 100
"""The number of unknown names that are compared with known ones; more are no misspellings."""


def unknown_allowances(names: Iterable[str]) -> Iterator[Diagnostic]:
    """A warning for each name that resembles a known one, and a note for each other unknown name.

    Rules of a policy have names that are not known here.
    """
    names = tuple(names)
    known = frozenset((*known_names(), *rule_names())) if names else frozenset()
    for at, name in enumerate(name for name in names if name not in known):
        near = nearest_one(name, known) if at < _MOST_COMPARED else None
        is_near = near is not None and nearly(name, (near,), _LIKE) is not None
        yield _unknown(name, near, is_near=is_near)


def _unknown(name: str, near: str | None, *, is_near: bool) -> Diagnostic:
    return Diagnostic(
        "allowance-of-no-rule",
        "warning" if is_near else "note",
        f"`allow.{name}` does not name a rule, so it has no effect",
        (Label("no such rule", None, dotted(("allow", name))),),
        () if is_near else ("a policy may have a rule of that name",),
        f"did you mean `{near}`?" if near else "see `tunec catalog rules`",
    )


# ── what a rule was worth ─────────────────────────────────────────────────────────────────────────
RECORDS: Final = "compiler/lints/records.json"
"""How each rule was judged in public repositories; `just generate` makes it of the judgements."""
_TAKEN: Final = 2
_TAKEN_SHARE: Final = 0.7
"""What a record counts from the start: the share of all that lint said in public repositories."""


class Record(Struct, frozen=True):
    """For how many causes a rule spoke in public repositories, and how many of them were so."""

    true: int = 0
    judged: int = 0

    @property
    def share(self) -> float:
        """The share that is expected to be so: the fewer were judged, the nearer to that of all."""
        return (self.true + _TAKEN * _TAKEN_SHARE) / (self.judged + _TAKEN)


def record(name: str) -> Record:
    """The record of a rule, or of a code."""
    return _records().get(name, Record())


@cached()
def _records() -> Mapping[str, Record]:
    held: Mapping[str, tuple[int, int]] = json.loads((_ROOT / RECORDS).read_text("utf-8"))
    return {name: Record(*numbers) for name, numbers in held.items()}
