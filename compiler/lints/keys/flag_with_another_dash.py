"""A flag of the trainer with one dash, or with a dash that no keyboard has."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.document import TRAINERS
from tunec.compiler.lints.kinds import fields_of
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DASHED: Final = re.compile(
    r"(-(?!-)|[-\u2010-\u2015\u2212]*[\u2010-\u2015\u2212]-*)([A-Za-z]\w{2,})"
)


def _check(run: Run) -> Iterator[Finding]:
    trained = {each.name for each in run.of(*TRAINERS) if each.format == "shell"}
    for document in run.of("launch"):
        script = document.get("script")
        if script is None or document.name not in trained:
            continue
        for item in script.node.items or ():
            found = _DASHED.fullmatch(str(item.value))
            if found is not None and found[2] in fields_of("hf"):
                word = Place(document, "script", item)
                yield _finding(word, found[1], found[2])


def _finding(word: Place, dash: str, name: str) -> Finding:
    what = "one dash" if dash == "-" else "a dash that typesetting puts in"
    return Finding(
        f"{dash}{name} is no flag: it begins with {what}",
        (Label("not a flag", word.span, name, True),),
        ("argparse hands the word on, and the trainer's parser refuses what no argument takes",),
        f"write --{name}",
        Fix((word.replaced(f"--{name}"),), "safe") if dash == "-" else None,
    )


RULE = Rule(
    name="flag-with-another-dash",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 hf_argparser.py `parse_args_into_dataclasses`: Some "
            "specified arguments are not used by the HfArgumentParser"
        ),
        "Python 3.11 argparse.py `ArgumentParser._get_option_tuples`",
    ),
    check=_check,
)
