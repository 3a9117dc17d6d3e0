"""Settings of the optimizer that SimpleTuner cannot take apart."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.asked import configs, said
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_WORDS: Final = ("true", "false", "none")
_NUMBER: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        at = said(document, "optimizer_config")
        if at is None or not isinstance(at.value, str) or "$" in at.value:
            continue
        for part in at.value.split(","):
            name, sign, value = (each.strip() for each in part.partition("="))
            if not sign:
                yield _finding(at, f"`{part}` is no setting: it lacks a sign of equality")
                break
            if "." in value and _NUMBER.fullmatch(value) is None:
                yield _finding(at, f"`{value}` is no number of {name}")
                break
            if _is_left_as_text(value):
                yield _as_text(at, name, value)


def _is_left_as_text(value: str) -> bool:
    """A number that neither a point nor `e-` tells."""
    is_told = "." in value or value.isdigit() or "e-" in value or value.lower() in _WORDS
    return not is_told and _NUMBER.fullmatch(value) is not None


def _finding(at: Place, what: str) -> Finding:
    return Finding(
        f"optimizer_config cannot be taken apart: {what}",
        (at.label("refused"),),
        (
            "it is cut at each comma, and each part at its sign of equality",
            "betas have flags of their own, optimizer_beta1 and optimizer_beta2",
        ),
        "write optimizer_config: weight_decay=0.01,eps=1e-8",
    )


def _as_text(at: Place, name: str, value: str) -> Finding:
    return Finding(
        f"{name} of optimizer_config is the text {value!r}, and no number",
        (at.label("a text"),),
        ("a number is told by its point or by `e-`, and a whole one by its digits",),
        f"write {name}={float(value)!r}",
        consequence="init",
    )


RULE = Rule(
    name="optimizer-config-unreadable",
    severity="error",
    consequence="parse",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/optimizer_param.py "
            "`convert_arg_to_parameters`: param.split('='), float(param[1]), asked by "
            "helpers/configuration/cmd_args.py `parse_cmdline_args`"
        ),
    ),
    check=_check,
)
