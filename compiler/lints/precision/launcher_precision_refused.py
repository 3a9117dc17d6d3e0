"""A precision of the launcher beside a ds_config.json that enables the other one."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OTHER: Final = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}


def _check(run: Run) -> Iterator[Finding]:
    launched = _launched(run)
    if launched is None or launched.word not in _OTHER:
        return
    mode = _OTHER[launched.word]
    if any(each.value not in (False, None) for each in run.each("trainer", mode)):
        return  # the Trainer sets the variable by its own arguments
    for at in run.each("deepspeed", f"{mode}.enabled"):
        if at.value is True and not at.document.is_view:
            yield Finding(
                f"mixed_precision {launched.value} is refused beside {mode} of {at.document.name}",
                (launched.label("refused"), at.label("enabled here", primary=False)),
                (f"accelerate: `--mixed_precision` cannot be set where {mode} is set in the file",),
                f"write {mode}, or let the file say `auto`",
            )


def _launched(run: Run) -> Place | None:
    flags = (each.get("flags.mixed_precision") for each in launches(run, "accelerate"))
    given = next((each for each in flags if each is not None), None)
    return given or next(_in_file(run), None)


def _in_file(run: Run) -> Iterator[Place]:
    """Of a file that names ds_config.json itself, `engine-settings-overridden` speaks."""
    for at in run.each("accelerate", "mixed_precision"):
        if at.document.get("deepspeed_config.deepspeed_config_file") is None:
            yield at


RULE = Rule(
    name="launcher-precision-refused",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py "
            "`DeepSpeedPlugin.set_mixed_precision`: ValueError; state.py `AcceleratorState`: "
            "ACCELERATE_MIXED_PRECISION where the script names none"
        ),
    ),
    check=_check,
)
