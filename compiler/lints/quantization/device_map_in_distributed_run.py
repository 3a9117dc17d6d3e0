"""One process of several places the model on devices that are not its own."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import LOADERS, processes, quantised
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = ("device_map", "model_init_kwargs.device_map", "model_kwargs.device_map")
_SPREADS: Final = ("auto", "balanced", "balanced_low_0", "sequential")


def _check(run: Run) -> Iterator[Finding]:
    world = processes(run)
    if run.value("zero.stage") == 3:  # refused for another reason, which is another rule's
        return
    for document in run.of(*LOADERS, "axolotl", "llamafactory"):
        place = None if document.is_view else _mapped(document)
        if place is None or (world is not None and world < 2):
            continue
        what = _fault(run, place)
        if what is None or (world is None and not _has_several(run)):
            continue
        yield Finding(
            what,
            (place.key_label("the same in every process"),),
            (f"{world} processes are started, each of which loads the model",) if world else (),
            "leave it out, or give each process its own device",
            certain=world is not None,
        )


def _mapped(document: Document) -> Place | None:
    return next((place for key in _KEYS if (place := document.get(key)) is not None), None)


def _fault(run: Run, place: Place) -> str | None:
    if place.value in _SPREADS:
        return f"device_map {place.value} in a run of several processes"
    if isinstance(place.value, dict) and len(place.value) > 1:
        return "device_map lays parts of the model on devices by hand, in several processes"
    if _is_one_device(place.value) and quantised(run) is not None:
        return "every process puts the quantised base on the same device"
    return None


def _is_one_device(value: Any) -> bool:
    """`{"": 0}`, `{"": "cuda:0"}`, or `cuda:0`."""
    if isinstance(value, dict) and list(value) == [""]:
        value = value[""]
    return is_whole(value) or (isinstance(value, str) and value.startswith("cuda:"))


def _has_several(run: Run) -> bool:
    cluster = run.environment.cluster
    return cluster is not None and cluster.device_count > 1


RULE = Rule(
    name="device-map-in-distributed-run",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 accelerator.py `prepare_model`: ValueError, on a "
            "different "
            "device than the one you're training on; with device_map='auto' in any distributed mode"
        ),
        "huggingface/trl#722, #1348, huggingface/accelerate#2713, artidoro/qlora#186",
    ),
    check=_check,
)
