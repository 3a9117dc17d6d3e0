"""A switch of SimpleTuner's is turned off in words that its loader leaves out."""

from collections.abc import Iterator
from functools import cache
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.diffusion.asked import configs, said
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_RELEASES: Final = ("3.1.6", "4.10.1")


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        for flag in _on_by_themselves():
            at = said(document, flag)
            if at is not None and _is_dropped(document, at):
                yield _finding(document, flag, at)


@cache
def _on_by_themselves() -> tuple[str, ...]:
    """Switches that are on where nobody speaks of them, in every known release."""
    every = [schema(f"simpletuner/{each}.json")["properties"] for each in _RELEASES]
    return tuple(
        name
        for name, each in every[0].items()
        if isinstance(each, dict)
        and each.get("default") is True
        and all(isinstance(other.get(name), dict) for other in every)
    )


def _is_dropped(document: Document, at: Place) -> bool:
    """Only a false that is none of JSON's or TOML's, and stands by itself, is left out."""
    if document.format == "shell" and at.path == "TRAINER_EXTRA_ARGS":
        return False
    is_word = isinstance(at.value, str) or document.format == "shell"
    return is_word and str(at.value).strip().lower() == "false"


def _finding(document: Document, flag: str, at: Place) -> Finding:
    is_env = document.format == "shell"
    why = "a variable" if is_env else "a text"
    help_ = f'write TRAINER_EXTRA_ARGS="--{flag}=false"' if is_env else "write false without quotes"
    return Finding(
        f"{at.path} stays true",
        (at.label("left out"),),
        (f"{why} that says false becomes no flag, and {flag} is true where nobody turns it off",),
        help_,
        None if is_env else Fix((at.replaced(False),), "safe"),
    )


RULE = Rule(
    name="false-is-dropped",
    severity="error",
    consequence="silent",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cli_utils.py "
            "`mapping_to_cli_args`: value_lower == 'false': continue; env_file.py "
            "`load_env_config`: only true becomes a flag; run: gradient_checkpointing stays true"
        ),
    ),
    check=_check,
)
