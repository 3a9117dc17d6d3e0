"""An optimizer with 8-bit states whose parameters FSDP shards or offloads."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.fsdp.asked import asked, offloaded
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_REFUSED: Final = ("adamw_8bit", "adamw_bnb_8bit")
"""Those that Axolotl knows of."""


def _check(run: Run) -> Iterator[Finding]:
    optim = run.said("trainer", "optim")
    if optim is None or not _is_bnb(optim.value):
        return
    for each in asked(run):
        away = offloaded(each)
        if each.version == 2:
            is_refused = each.who == "axolotl" and optim.value in _REFUSED
            second: Consequence = "parse" if is_refused else "step"
            yield _finding(optim.value, "FSDP2", optim, each.on, second)
        elif away is not None:
            when: Consequence = "parse" if each.who == "axolotl" else "step"
            yield _finding(optim.value, "FSDP's offload", optim, away, when)


def _is_bnb(name: object) -> bool:
    return isinstance(name, str) and ("8bit" in name or "paged" in name) and "torch" not in name


def _finding(name: str, what: str, optim: Place, other: Place, consequence: Consequence) -> Finding:
    return Finding(
        f"{name} does not work with {what}",
        (optim.label("needs its parameters on the device"), other.label("", primary=False)),
        ("bitsandbytes steps plain tensors on a CUDA device, by kernels of its own",),
        "use adamw_torch"
        if consequence != "parse"
        else "use adamw_torch_8bit, or adamw_torch with offload",
        consequence=consequence,
        severity=None if consequence == "parse" else "warning",
    )


RULE = Rule(
    name="fsdp-8-bit-optimizer",
    severity="error",
    consequence="step",
    consumers=(
        "bitsandbytes",
        "axolotl",
    ),
    sources=(
        (
            "axolotl 0.19.0 utils/schemas/validation.py `check_fsdp_offload_w_8bit_optimizer`, "
            "`check_fsdp2_w_8bit_optimizer`: FSDP Offload not compatible with ...; CUDA ops errors "
            "with bnb 8bit optimizer + FSDP2"
        ),
        (
            "bitsandbytes-foundation/bitsandbytes#1633, 0.45.5: illegal memory access with FSDP2; "
            "meta-pytorch/torchtune#1856: a CUDA error of PagedAdamW with FSDP2"
        ),
        (
            "not checked in the code of bitsandbytes/bitsandbytes itself: outside Axolotl it is a "
            "warning"
        ),
    ),
    check=_check,
)
