"""States of a quantised optimizer that FSDP cannot gather for a checkpoint."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.fsdp.asked import Asked, asked, offloaded
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BNB: Final = frozenset(
    {
        *("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit"),
        *("ademamix_8bit", "paged_ademamix_8bit", "rmsprop_bnb_8bit"),
    }
)
_TORCHAO: Final = frozenset(
    {
        *("adamw_torch_8bit", "adamw_torch_4bit"),
        *("ao_adamw_8bit", "ao_adamw_4bit", "ao_adamw_fp8"),
    }
)
"""transformers 5.23.0 training_args.py `OptimizerNames`; axolotl 0.19.0 utils/schemas/enums.py
`CustomSupportedOptimizers`."""
_MENDED: Final = "bitsandbytes>=0.49.2"


def _check(run: Run) -> Iterator[Finding]:
    optim = run.said("trainer", "optim")
    if optim is None or not _is_saved(run):
        return
    for each in asked(run):
        why = _why(run, str(optim.value), each)
        if why:
            yield _finding(optim, each, why)


def _is_saved(run: Run) -> bool:
    strategy, alone = run.said("trainer", "save_strategy"), run.said("trainer", "save_only_model")
    is_off = strategy is not None and strategy.value in ("no", False)
    return not is_off and not (alone is not None and alone.value is True)


def _why(run: Run, name: str, each: Asked) -> str:
    if each.version == 2 or offloaded(each) is not None:
        return ""  # it does not come so far: `fsdp-8-bit-optimizer`
    if name in _BNB and run.runs(_MENDED) is not True:
        return "bitsandbytes before 0.49.2: absmax has another length than the parameter"
    if name in _TORCHAO and each.version == 1:
        return "torchao: NotImplementedError, OptimState8bit has no new_zeros"
    return ""


def _finding(optim: Place, each: Asked, why: str) -> Finding:
    is_caught = each.who == "axolotl" and str(optim.value) in _TORCHAO
    after = ("Axolotl goes on without the states: no checkpoint can be resumed",)
    return Finding(
        f"the states of {optim.value} cannot be gathered by FSDP for a checkpoint",
        (optim.label("quantised states"), each.on.key_label("", primary=False)),
        (why, *(after if is_caught else ())),
        "use adamw_torch_fused, or write save_only_model: true",
    )


RULE = Rule(
    name="fsdp-8-bit-states-lost",
    severity="warning",
    consequence="save",
    consumers=("torch", "bitsandbytes", "axolotl"),
    sources=(
        (
            "bitsandbytes-foundation/bitsandbytes#89, #1403, #1732; huggingface/accelerate#1362: "
            "the optimizer is not saved"
        ),
        (
            "bitsandbytes 0.49.2 and 0.50.2 optim/optimizer.py "
            "`_FSDP_WRAPPED_QUANT_STATE_KEY`, not in 0.45.0"
        ),
        (
            "pytorch/ao#1185, axolotl-ai-cloud/axolotl#2744; axolotl 0.19.0 "
            "core/trainers/mixins/checkpoints.py `CheckpointSaveMixin`"
        ),
    ),
    check=_check,
)
