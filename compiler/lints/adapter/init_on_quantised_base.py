"""Adapters are to be initialised from weights that are quantised."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import Lora, loras
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_REFUSED = ("pissa", "corda", "loftq")
"""peft 0.10.0 to 0.21.2: `pissa_init`, `corda_init` want a float weight, `loftq_init` quantises it
itself; `olora_init` dequantises, and the others do not look at the weight."""


def _check(run: Run) -> Iterator[Finding]:
    yield from _asked_of_simpletuner(run)
    quantised = run.observed("quantization.format")
    if quantised is None or quantised.value in (None, "none"):
        return
    stored = run.place(quantised)
    for lora in loras(run):
        at = _asked(lora)
        if at is None:
            continue
        word = "loftq" if isinstance(at.value, dict) else at.value
        yield _finding(at, str(word), str(quantised.value), stored)


def _asked_of_simpletuner(run: Run) -> Iterator[Finding]:
    """Only bitsandbytes packs the weights; LoftQ is made `default` beside any quantised base."""
    base = next(iter(run.each("simpletuner", "base_model_precision")), None)
    for at in run.each("simpletuner", "lora_init_type"):
        if base is not None and at.value == "pissa" and base.value == "nf4-bnb":
            yield _finding(at, str(at.value), str(base.value), base)


def _finding(at: Place, word: str, form: str, stored: Place | None) -> Finding:
    return Finding(
        f"{word} initialises adapters from the base's weights, which are {form}",
        (
            at.label("needs the weights before quantisation"),
            *([stored.label("", primary=False)] if stored else []),
        ),
        ("the adapters take a part of the weights, and the rest has to be quantised after it",),
        "initialise on the unquantised model, save the rest, and quantise that",
    )


def _asked(lora: Lora) -> Place | None:
    loftq = lora.place("loftq_config") if lora.document.kind == "axolotl" else None
    if loftq is not None and loftq.value:
        return loftq
    init = lora.place("init_lora_weights")
    word = init.value if init is not None else None
    return init if isinstance(word, str) and word.startswith(_REFUSED) else None


RULE = Rule(
    name="init-on-quantised-base",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/lora/layer.py `pissa_init`: Please initialize PiSSA "
            "under float32, float16, or bfloat16; `loftq_init`"
        ),
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py: "
            "lora_initialisation_style = lora_init_type; LoftQ initialisation is not supported"
        ),
        "axolotl 0.8.1 to 0.19.0 utils/schemas/peft.py, validation.py: loftq",
    ),
    check=_check,
)
