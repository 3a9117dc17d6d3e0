"""Bias terms of LoRA's own beside what cannot have them."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import is_true, loras
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
        at = lora.place("lora_bias")
        if lora.document.kind not in ("peft", "glm4") or at is None or at.value is not True:
            continue
        dora, init = lora.place("use_dora"), lora.place("init_lora_weights")
        if dora is not None and is_true(dora.value):
            other, what = dora, "use_dora"
        elif init is not None and not isinstance(init.value, bool):
            other, what = init, f"init_lora_weights {init.value}"
        else:
            continue
        yield Finding(
            f"lora_bias cannot stand beside {what}",
            (at.label("refused"), other.label("", primary=False)),
            ("PEFT refuses the pair while it reads the configuration",),
            "remove one of the two",
        )


RULE = Rule(
    name="lora-bias-rejected",
    severity="error",
    consequence="parse",
    consumers=("peft>=0.14",),
    sources=(
        (
            "peft 0.15.2 to 0.21.2 tuners/lora/config.py `LoraConfig.__post_init__`: "
            "lora_bias=True is "
            "not supported for DoRA, and only with init_lora_weights True or False"
        ),
    ),
    check=_check,
)
