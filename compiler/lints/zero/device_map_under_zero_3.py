"""A model that stage 3 shards is to be laid out by a device map."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_MAPS: Final = ("device_map", "model_init_kwargs.device_map")
_LOADS: Final = ("low_cpu_mem_usage", "model_init_kwargs.low_cpu_mem_usage")
_KINDS: Final = ("model", "trainer")


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    if stage.value != 3 or run.deepspeed_reader == "plain":
        return
    for kind in _KINDS:
        for place in (each for key in _MAPS for each in run.each(kind, key)):
            if place.value not in (None, "none", "null", False):
                yield _finding(place, f"device_map {_word(place.value)}", stage.place)
        old = run.runs("transformers<4.50")
        for place in (each for key in _LOADS for each in run.each(kind, key)):
            if place.value is True and old is not False:
                found = _finding(place, "low_cpu_mem_usage", stage.place)
                yield replace(found, severity=None if old else "warning")


def _finding(place: Place, what: str, stage: Place | None) -> Finding:
    return Finding(
        f"{what} is refused at ZeRO stage 3",
        (place.label("refused"), *also(stage)),
        ("stage 3 shards each weight as it is created: there is no device to lay it on",),
        "remove it",
        Fix((place.removed(),), "unsafe"),
    )


def _word(value: Any) -> str:
    return value if isinstance(value, str) else "given as a mapping"


RULE = Rule(
    name="device-map-under-zero-3",
    severity="error",
    consequence="load",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 modeling_utils.py `from_pretrained`, "
            "integrations/accelerate.py `check_and_set_device_map`: DeepSpeed Zero-3 is not "
            "compatible with passing a `device_map`"
        ),
        (
            "transformers 4.40.2, 4.44.2, 4.46.3 modeling_utils.py `from_pretrained`: nor with "
            "low_cpu_mem_usage=True"
        ),
    ),
    check=_check,
)
