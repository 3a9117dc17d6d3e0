"""A number of fp16's loss scaling that DeepSpeed does not take, or that ends the run."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_POSITIVE: Final = {
    "loss_scale_window": "the scale is raised every so many steps: a division by it",
    "min_loss_scale": "it is the floor of the scale, which falls to nothing",
}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        static = document.get("fp16.loss_scale")
        if static is not None and is_number(static.value) and static.value < 0:
            why = "a gradient times a negative number climbs; 0 is for a scale that adapts"
            yield _finding(run, static, why, "write 0", is_known=run.runs("deepspeed>=0.18.9"))
        elif static is not None and isinstance(static.value, bool):
            why = "a bool is no number; before 0.18.9 true is a scale of 1, and false adapts"
            yield _finding(run, static, why, "write 0", is_known=run.runs("deepspeed>=0.18.9"))
        elif _is_dynamic(document):
            for key, why in _POSITIVE.items():
                place = document.get(f"fp16.{key}")
                if place is not None and is_number(place.value) and place.value <= 0:
                    known = run.runs("deepspeed>=0.19.8")
                    yield _finding(run, place, why, "write a number of 1 or more", is_known=known)


def _is_dynamic(document: Document) -> bool:
    enabled = document.value("fp16.enabled", False)
    return enabled not in (False, None) and document.value("fp16.loss_scale", 0) == 0


def _finding(run: Run, place: Place, why: str, mend: str, *, is_known: bool | None) -> Finding:
    del run
    return Finding(
        f"`{place.path}` cannot be {place.value}",
        (place.label("refused" if is_known is not False else "taken, and wrong"),),
        (why,),
        mend,
        consequence="step" if is_known is False else None,
    )


RULE = Rule(
    name="loss-scale-refused",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.18.9, 0.19.8 runtime/precision_config.py `_validate_loss_scale`: must be "
            ">= 0; 0.19.8 `_validate_dynamic_loss_scale_params`: loss_scale_window, min_loss_scale "
            "must be > 0; before, fp16/loss_scaler.py `DynamicLossScaler.update_scale`: % "
            "scale_window"
        ),
        "deepspeedai/DeepSpeed#7889",
    ),
    check=_check,
)
