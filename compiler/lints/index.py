"""Every rule by name: a folder's modules are imported when one of its rules is first asked for."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from tunec.compiler.lints.rule import Rule

_FOLDER: Final = Path(__file__).parent / "checks"

_READERS: Final[Mapping[str, frozenset[str]]] = {
    "alpaca_lora": frozenset({"alpaca-lora"}),
    "axolotl": frozenset({"axolotl"}),
    "chatglm": frozenset({"launch"}),
    "diffusion": frozenset(
        {"diffusers", "diffusers-run", "lycoris", "simpletuner", "simpletuner-data"}
    ),
    "glm4": frozenset({"glm4"}),
    "host_memory": frozenset({"deepspeed"}),
    "llama_cookbook": frozenset({"llama-cookbook"}),
    "llamafactory": frozenset({"axolotl", "llamafactory", "simpletuner"}),
    "sat": frozenset({"sat"}),
    "zero": frozenset({"deepspeed"}),
}
"""Subjects that speak only of runs with a document of one of these kinds."""
_DEEPSPEED_ALONE: Final = frozenset({"deepspeed"})
_OF_TRAINERS: Final = frozenset(
    {"accelerate", "adapter", "evaluation", "fsdp", "launch", "preference", "quantization"}
    | {"reporting", "sequence", "trainer", "vision"}
)
"""Subjects that have nothing to say of a file that DeepSpeed reads alone."""


@cache
def _subjects() -> Mapping[str, str]:
    """The folder of each rule: a rule is what has a page, `checks/<subject>/<name>.md`."""
    pages = sorted(_FOLDER.glob("*/*.md"), key=lambda each: each.stem)
    return {page.stem: page.parent.name for page in pages}


@cache
def rules_of(subject: str) -> Mapping[str, Rule]:
    """The rules of a folder by name."""
    names = (each.stem for each in sorted((_FOLDER / subject).glob("[!_]*.py")))
    modules = (import_module(f"{__package__}.checks.{subject}.{name}") for name in names)
    values = (each for module in modules for each in vars(module).values())
    return {each.name: each for each in values if isinstance(each, Rule)}


def rule_names() -> tuple[str, ...]:
    """Names of all rules, sorted."""
    return tuple(_subjects())


def is_rule(name: str) -> bool:
    """Whether there is a rule of that name."""
    return name in _subjects()


def rule(name: str) -> Rule:
    """The rule of a name; raise KeyError if there is none."""
    return rules_of(subject(name))[name]


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, in the order of names."""
    return tuple(map(rule, rule_names()))


@cache
def rules_for(kinds: frozenset[str]) -> tuple[Rule, ...]:
    """The rules that may speak of documents of these kinds, in the order of names."""
    asked = (each for each in sorted(set(_subjects().values())) if _speaks(each, kinds))
    found = (rule for each in asked for rule in rules_of(each).values())
    return tuple(sorted(found, key=lambda each: each.name))


def _speaks(subject: str, kinds: frozenset[str]) -> bool:
    if subject in _OF_TRAINERS:
        return kinds != _DEEPSPEED_ALONE
    return subject not in _READERS or not kinds.isdisjoint(_READERS[subject])


def subject(name: str) -> str:
    """The folder of a rule."""
    return _subjects()[name]


def rule_page(name: str) -> str:
    """The page of a rule, as Markdown; raise KeyError if there is none."""
    return (_FOLDER / subject(name) / f"{name}.md").read_text("utf-8")


def rule_title(name: str) -> str:
    """What a rule says in a few words: the heading of its page, without the name."""
    return rule_page(name).partition("\n")[0].removeprefix(f"# {name}: ")
