"""Kernels of LoRA that Axolotl does not put in where the adapter has dropout."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KERNELS: Final = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
_UNTIL: Final = "axolotl<0.16"


def _check(run: Run) -> Iterator[Finding]:
    if not run.runs(_UNTIL):
        return
    for document in configs(run):
        kernels = [at for key in _KERNELS if (at := where(document, key)) is not None]
        dropout = where(document, "lora_dropout>0")
        if kernels and dropout is not None:
            yield Finding(
                f"the kernels of LoRA are not used with lora_dropout {dropout.value}",
                (
                    dropout.label("keeps them out"),
                    *(each.label("passed over", primary=False) for each in kernels),
                ),
                ("Cannot patch layers - requires no dropout and no bias",),
                "write lora_dropout: 0, or use Axolotl 0.16 and later",
            )


RULE = Rule(
    name="kernels-passed-over",
    severity="warning",
    consequence="silent",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 to 0.15.0 monkeypatch/lora_kernels.py `apply_lora_kernel_patches`: "
            "can_patch = lora_dropout == 0 and bias == none; 0.16.1 has kernels with dropout"
        ),
        "axolotl-ai-cloud/axolotl#2655",
    ),
    check=_check,
)
