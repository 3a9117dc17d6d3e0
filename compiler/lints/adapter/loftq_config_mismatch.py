"""LoftQ's settings and the initialisation that uses them do not stand together."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import loras
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_CONFIGS = {
    "loftq": "loftq_config",
    "eva": "eva_config",
    "corda": "corda_config",
    "lora_ga": "lora_ga_config",
}


def _check(run: Run) -> Iterator[Finding]:
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


RULE = Rule(
    name="loftq-config-mismatch",
    severity="error",
    consequence="parse",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/lora/config.py `LoraConfig.__post_init__`: "
            "`loftq_config` "
            "must be specified when `init_lora_weights` is 'loftq'; specified but will be ignored"
        ),
    ),
    check=_check,
)
