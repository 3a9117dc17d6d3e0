"""Initialisations of LoRA and the weights that they need."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.lora import Lora, is_true, lora_keys, loras
from tunec.compiler.lints.facts.quantization import quantised, stored_form
from tunec.compiler.lints.rule import Finding, rule

_REFUSED = ("pissa", "corda", "loftq")
"""peft 0.10.0 to 0.21.2: `pissa_init`, `corda_init` want a float weight, `loftq_init` quantises it
itself; `olora_init` dequantises, and the others do not look at the weight."""


@rule(
    "init-on-quantised-base",
    "error",
    "init",
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
    reads=(*lora_keys("init_lora_weights", "loftq_config"), "simpletuner:lora_init_type"),
)
def init_on_quantised_base(run: LintContext) -> Iterator[Finding]:
    """Adapters are to be initialised from weights that are quantised."""
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
        yield _init_finding(at, str(word), str(quantised.value), stored)


def _asked_of_simpletuner(run: LintContext) -> Iterator[Finding]:
    """Only bitsandbytes packs the weights; LoftQ is made `default` beside any quantised base."""
    base = next(iter(run.each("simpletuner", "base_model_precision")), None)
    for at in run.each("simpletuner", "lora_init_type"):
        if base is not None and at.value == "pissa" and base.value == "nf4-bnb":
            yield _init_finding(at, str(at.value), str(base.value), base)


def _init_finding(at: Place, word: str, form: str, stored: Place | None) -> Finding:
    return Finding(
        f"{word} initialises adapters from the base's weights, which are {form}",
        (at.label("needs the weights before quantisation"), *also(stored)),
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


_CONFIGS = {
    "loftq": "loftq_config",
    "eva": "eva_config",
    "corda": "corda_config",
    "lora_ga": "lora_ga_config",
}


@rule(
    "loftq-config-mismatch",
    "error",
    "parse",
    consumers=("peft",),
    sources=(
        "peft 0.10.0 to 0.21.2 tuners/lora/config.py `LoraConfig.__post_init__`: `loftq_config` "
        "must be specified when `init_lora_weights` is 'loftq'; specified but will be ignored"
    ),
    reads=lora_keys("init_lora_weights", *_CONFIGS.values()),
)
def loftq_config_mismatch(run: LintContext) -> Iterator[Finding]:
    """LoftQ's settings and the initialisation that uses them do not stand together."""
    for lora in loras(run):
        if lora.document.kind not in ("peft", "glm4"):
            continue
        init = lora.place("init_lora_weights")
        word = init.value if init is not None else True
        if word == "loftq" and init is not None and not lora.value("loftq_config"):
            yield Finding(
                "init_lora_weights loftq has no loftq_config",
                (init.label("refused"),),
                ("PEFT has to know the bits that the base will be quantised to",),
                "write loftq_config: {loftq_bits: 4}",
            )
        for name, key in _CONFIGS.items():
            at = lora.place(key)
            if at is not None and at.value and word != name:
                yield Finding(
                    f"{key} is ignored: init_lora_weights is not {name}",
                    (at.label("not used"),),
                    ("PEFT warns and initialises adapters as usual",),
                    f"write init_lora_weights: {name}, or remove it",
                    Fix((at.removed(),), "unsafe"),
                    severity="warning",
                    consequence="silent",
                )


_BITSANDBYTES: Final = "peft<0.10"
_PACKED: Final = ("gptq", "awq", "aqlm")
"""Forms by a checkpoint's name for which no release has DoRA."""


@rule(
    "dora-on-quantised-base",
    "error",
    "init",
    consumers=("peft",),
    sources=(
        "peft 0.9.0 tuners/lora/bnb.py `Linear8bitLt.__init__`, `Linear4bit.__init__`: does not "
        "support DoRA yet; gone in 0.10.0; the same in gptq.py, awq.py and aqlm.py of 0.9.0 to "
        "0.21.2"
    ),
    reads=lora_keys("use_dora"),
)
def dora_on_quantised_base(run: LintContext) -> Iterator[Finding]:
    """DoRA over a quantised base whose layers have no form of it."""
    base, form = quantised(run), stored_form(run)
    for lora in loras(run):
        dora = lora.place("use_dora")
        if dora is None or not is_true(dora.value):
            continue
        if base is not None and run.runs(_BITSANDBYTES) is True:
            yield _dora_finding(lora, dora, (base.form, base.place), "or PEFT 0.10.0 and later")
        elif form is not None and form[0] in _PACKED:
            yield _dora_finding(lora, dora, form, "or a base of bitsandbytes")


def _dora_finding(lora: Lora, dora: Place, base: tuple[str, Place], otherwise: str) -> Finding:
    form, stored = base
    return Finding(
        f"{lora.key('use_dora')} over a base in {form}",
        (dora.label("refused"), stored.label("quantised", primary=False)),
        ("its layers raise: does not support DoRA yet, please set it to False",),
        f"use plain LoRA, {otherwise}",
    )
