"""Every rule by name: found where its page lies, imported when it is first asked for."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from tunec.compiler.lints.rule import Rule

_FOLDER: Final = Path(__file__).parent


@cache
def _modules() -> dict[str, str]:
    """The module of each rule: a rule is what has a page, `<subject>/<name>.md`."""
    pages = sorted(_FOLDER.glob("*/*.md"), key=lambda each: each.stem)
    return {page.stem: f"{page.parent.name}.{page.stem.replace('-', '_')}" for page in pages}


def rule_names() -> tuple[str, ...]:
    """Names of all rules, sorted."""
    return tuple(_modules())


def is_rule(name: str) -> bool:
    """Whether there is a rule of that name."""
    return name in _modules()


def rule(name: str) -> Rule:
    """The rule of a name; raise KeyError if there is none."""
    return rule_of(subject(name), name)


@cache
def rule_of(subject: str, name: str) -> Rule:
    """The rule of a name, by its folder: no other is looked for."""
    found: Rule = import_module(f"{__package__}.{subject}.{name.replace('-', '_')}").RULE
    return found


def rules() -> Iterator[Rule]:
    """Every rule, in the order of names."""
    return map(rule, rule_names())


def subject(name: str) -> str:
    """The folder of a rule."""
    return _modules()[name].partition(".")[0]


def rule_page(name: str) -> str:
    """The page of a rule, as Markdown; raise KeyError if there is none."""
    return (_FOLDER / subject(name) / f"{name}.md").read_text("utf-8")


def rule_title(name: str) -> str:
    """What a rule says in a few words: the heading of its page, without the name."""
    return rule_page(name).partition("\n")[0].removeprefix(f"# {name}: ")
