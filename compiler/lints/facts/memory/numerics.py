"""Dtypes and the optimizer of a run, in the leanest way that its files leave open."""

from typing import TYPE_CHECKING, Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.memory.text_scripts import text_script_of

if TYPE_CHECKING:
    from tunec.compiler.analyses.memory.workload import Workload
    from tunec.compiler.ir.slots import States


def compute_of(run: LintContext) -> Any:
    """The dtype of products.

    Without a flag GLM-4's scripts and LLaMA-Factory load in 16 bits, and compute so (llamafactory
    0.9.1 to 0.9.5 model/patcher.py `patch_config`: infer_optim_dtype of the model's own); qlora.py
    computes in fp32, of which the cheaper reading is 16 bits too.
    """
    told = run.value("precision.compute")
    if told is not None:
        return told
    if run.of("glm4"):
        return run.value("states.weights")
    if any(str(place.value) == "auto" for place in run.each("axolotl", "bf16")):
        return "bf16"  # as wide as fp16, which it is where the device has no bf16
    stored = run.model.stored_dtype if run.model is not None else None
    is_narrow = bool(run.of("llamafactory")) or text_script_of(run) is not None
    return stored if is_narrow and stored in ("bf16", "fp16") else None


def optimizer_of(run: LintContext) -> str | None:
    """Its name, plain AdamW where nobody says; None: one whose states are not known here."""
    name = run.value("optimizer.name")
    if name is None:
        said = run.said("trainer", "optim", "optimizer") or run.said("axolotl", "optimizer")
        return "adamw" if said is None and run.said("deepspeed", "optimizer.type") is None else None
    from tunec.compiler.analyses.memory.terms.optimizer import MOMENTS

    return str(name) if name in MOMENTS or name == "adafactor" else None


def kernel_of(run: LintContext) -> Any:
    """How it steps: as is written, or as a named release does unasked; else the leanest way.

    deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`: FusedAdam, where its
    own file names an optimizer.
    """
    if run.said("deepspeed", "optimizer.type"):
        return "fused"
    asked = run.effective("trainer", "optim")
    is_sure = asked.is_written or run.release("transformers").is_named
    return _KERNELS.get(str(asked.value), "fused") if is_sure else "fused"


_KERNELS: Final = {"adamw_torch": "foreach", "adamw_hf": "loop"}
"""transformers 4.40.2 to 5.23.0 trainer.py `get_optimizer_cls_and_kwargs`; torch 2.0 to 2.13
optim/optimizer.py `_default_to_fused_or_foreach`."""


def states_for(run: LintContext, workload: "Workload", engine: Any, stage: int) -> "States":
    """DeepSpeed's, FSDP's and PEFT's follow; else fp32 only where something asks for it."""
    from tunec.compiler.ir.slots import States
    from tunec.compiler.passes.fit.states import states_of

    if engine in ("deepspeed", "fsdp") or workload.adapter.kind != "none" or _in_fp32(run):
        return states_of(workload, engine, stage)
    compute = workload.precision.compute
    moments: Any = "int8" if "8bit" in workload.optimizer.name else compute
    return States(compute, compute, compute, False, moments, autocast=False)


def _in_fp32(run: LintContext) -> bool:
    """fp16 has to scale fp32 gradients; diffusers and LLaMA-Factory cast what they train."""
    if run.of("diffusers"):
        return True
    if compute_of(run) != "bf16" or run.value("states.weights") == "fp32":
        return True
    pure = run.said("llamafactory", "pure_bf16")
    return bool(run.of("llamafactory")) and (pure is None or pure.value is not True)
