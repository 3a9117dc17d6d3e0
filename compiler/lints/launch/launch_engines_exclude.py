"""Switches of accelerate that exclude each other."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_ENGINES: Final = ("multi_gpu", "cpu", "tpu", "use_deepspeed", "use_fsdp")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "accelerate"):
        asked = [document.get(f"flags.{name}") for name in _ENGINES]
        given = [each for each in asked if each is not None and each.value is True]
        if len(given) > 1:
            names = " and ".join("--" + each.path.removeprefix("flags.") for each in given)
            yield Finding(
                f"{names} exclude each other",
                (
                    given[-1].key_label("refused"),
                    *(each.key_label("", primary=False) for each in given[:-1]),
                ),
                ("accelerate takes one of them",),
                f"leave out --{given[0].path.removeprefix('flags.')}",
            )


RULE = Rule(
    name="launch-engines-exclude",
    severity="error",
    consequence="parse",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: You can "
            "only use one of --cpu, --multi_gpu, --tpu, --use_deepspeed, --use_fsdp at a time"
        ),
    ),
    check=_check,
)
