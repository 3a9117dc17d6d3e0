"""A section of SimpleTuner's configuration, whose keys become no flags."""

from collections.abc import Iterator
from functools import cache
from typing import Final

from tunec.compiler.lints.diffusion.asked import configs
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_RELEASES: Final = ("3.1.6", "4.10.1")


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        for name, at in document.found.items():
            keys = list(at.node.fields or ())
            if "." in name or not keys or name.lstrip("-") in _flags():
                continue
            mine = [key for key in keys if key.lstrip("-") in _flags()]
            if mine:
                yield Finding(
                    f"the keys of {name} are not read: {', '.join(mine[:3])}",
                    (at.key_label("a section"),),
                    ("every key at the top becomes a flag, and a mapping becomes none",),
                    "write its keys at the top of the file",
                )


@cache
def _flags() -> frozenset[str]:
    every = (schema(f"simpletuner/{each}.json")["properties"] for each in _RELEASES)
    return frozenset(name for each in every for name in each)


RULE = Rule(
    name="section-passed-over",
    severity="error",
    consequence="parse",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/toml_file.py `load_toml_config`, "
            "json_file.py; cli_utils.py `mapping_to_cli_args`: isinstance(value, Mapping): "
            "continue; the required flags are then missing"
        ),
    ),
    check=_check,
)
