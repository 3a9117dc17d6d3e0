"""A variable of SimpleTuner's config.env that becomes no flag."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.asked import configs
from tunec.compiler.lints.diffusion.env_file import (
    MORE,
    VARIABLES,
    extra,
    is_env_file,
    variables_of,
)
from tunec.compiler.lints.diffusion.flag_not_known import flags
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FAMILIES: Final = {
    "FLUX": "flux",
    "STABLE_DIFFUSION_3": "sd3",
    "PIXART_SIGMA": "pixart",
    "KOLORS": "kolors",
    "SMOLDIT": "",
    "STABLE_DIFFUSION_LEGACY": "sd1x",
}
"""bghira/SimpleTuner v1.0 config/config.env.example: a switch for each family."""
_FORMER: Final = {"MIN_SNR_GAMMA": "snr_gamma", "SNR_GAMMA": "snr_gamma"}


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        if is_env_file(document):
            for name, at in document.found.items():
                if name != MORE and name not in VARIABLES:
                    yield from _of(document, name, at)


def _of(document: Document, name: str, at: Place) -> Iterator[Finding]:
    says = str(at.value).strip().lower()
    if name in _FAMILIES:
        if says == "true":
            family = _FAMILIES[name] or "the family's name"
            yield _finding(at, name, "write MODEL_FAMILY=" + family)
        return
    flag = _FORMER.get(name, name.lower())
    if flag not in flags() or says in ("", "false", "none") or flag in extra(document):
        return
    other = next(iter(variables_of(flag)), None)
    if other is not None and document.get(other) is not None:
        return
    wanted = f"write {other}={at.value}" if other else f'write {MORE}="--{flag}={at.value}"'
    yield _finding(at, name, wanted)


def _finding(at: Place, name: str, wanted: str) -> Finding:
    return Finding(
        f"{name} becomes no flag of SimpleTuner",
        (at.key_label("not read"),),
        ("only the variables that it lists become flags: others are put into the surroundings",),
        wanted,
    )


RULE = Rule(
    name="variable-of-no-flag",
    severity="warning",
    consequence="silent",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/env_file.py `env_to_args_map`, "
            "`load_env_config`: 81 and 131 variables of some 345 and 570 flags"
        ),
        "bghira/SimpleTuner#804, #759",
    ),
    check=_check,
)
