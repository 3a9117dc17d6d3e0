"""SimpleTuner puts another optimizer in DeepSpeed's place."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.asked import configs, is_lora, said
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OWN: Final = "deepspeed_config.optimizer.type"
_TAKEN: Final = (
    *("adagrad", "adam", "adamw", "lamb", "lion", "muon", "muadam", "muadamw", "musgd"),
    *("onebitadam", "onebitlamb", "zerooneadam"),
)
_KEPT: Final = ("adamw", "adam", "lion")


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        engine, own = said(document, "deepspeed_config"), document.get(_OWN)
        at = own or said(document, "optimizer")
        if at is None or engine is None or not engine.value or is_lora(document):
            continue
        if (str(at.value).lower() in _TAKEN) if own is not None else _is_kept(at):
            continue
        yield Finding(
            f"{at.value} is replaced by AdamW under DeepSpeed",
            (at.label("not used"), engine.label("turns DeepSpeed on", primary=False)),
            ("SimpleTuner writes an optimizer into DeepSpeed's configuration, AdamW for most",),
            "choose an AdamW, or train without DeepSpeed",
        )


def _is_kept(at: Place) -> bool:
    name = str(at.value).lower()
    return any(word in name for word in _KEPT) and "8bit" not in name and "free" not in name


RULE = Rule(
    name="optimizer-replaced-under-deepspeed",
    severity="warning",
    consequence="silent",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/deepspeed_optimizers.py "
            "`SUPPORTED_OPTIMIZERS`, `sanitize_optimizer_mapping`"
        ),
    ),
    check=_check,
)
