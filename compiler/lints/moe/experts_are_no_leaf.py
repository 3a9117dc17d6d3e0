"""Experts at stage 3 that each rank gathers in its own order."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.moe.experts import BLOCKS, experts, family, named_family
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import stage_of

_SAID: Final = (
    "zero_optimization.leaf_module",
    "zero_optimization.stage3_module_granularity_threshold",
)


def _check(run: Run) -> Iterator[Finding]:
    stage, kind = stage_of(run), _kind(run)
    block = BLOCKS.get(kind)
    if stage.value != 3 or stage.place is None or block is None:
        return
    if run.said("deepspeed", *_SAID) or run.of("llamafactory"):
        return
    if run.said("accelerate", "deepspeed_config.deepspeed_moe_layer_cls_names"):
        return
    if run.runs("transformers>=5") is True or run.value("parallel.world", 2) == 1:
        return
    yield Finding(
        f"the experts of {kind} are no leaf of stage 3: the run hangs",
        (stage.place.label("each rank gathers the experts its tokens chose"),),
        (
            "gathers are collective: ranks that chose other experts wait for each other for ever",
            "from transformers 5 on the experts of a layer are one parameter: no such choice",
            "from DeepSpeed 0.18 on some blocks are leaves unasked",
        ),
        f"write deepspeed_moe_layer_cls_names: {block} in accelerate's file, call "
        f"set_z3_leaf_modules(model, [{block}]), or run DeepSpeed 0.18 with leaf_module",
    )


def _kind(run: Run) -> str:
    """The family of the run's experts: as the catalogue knows it, or by the model's name."""
    if run.model is None:
        return named_family(run)
    return family(run) if experts(run) else ""


RULE = Rule(
    name="experts-are-no-leaf",
    severity="error",
    consequence="step",
    consumers=("deepspeed<0.18",),
    sources=(
        (
            "deepspeed 0.14.5 utils/z3_leaf_module.py `set_z3_leaf_modules`; "
            "deepspeedai/DeepSpeed#4966, #7461"
        ),
        (
            "deepspeed 0.18.9 runtime/zero/leaf_module_config.py `DEFAULT_LEAF_MODULE_CLASSES`; "
            "0.17.6 has none"
        ),
        (
            "transformers 4.57.6 models/qwen3_moe/modeling_qwen3_moe.py: experts are a ModuleList; "
            "5.0.0: one parameter"
        ),
    ),
    check=_check,
)
