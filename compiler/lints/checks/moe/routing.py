"""Mixtures of experts."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, also
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.model import BLOCKS, experts, family, named_family
from tunec.compiler.lints.facts.sharding import stage_of
from tunec.compiler.lints.rule import Finding, keys, rule

_SINCE: Final = "trl>=1.7"


@rule(
    "balancing-of-no-experts",
    "error",
    "init",
    consumers=("trl", "llamafactory"),
    sources=(
        (
            "trl 1.7.0 to 1.16.0 trainer/sft_trainer.py, grpo_trainer.py (dpo, kto: 1.8) "
            "`__init__`: is not a Mixture-of-Experts model; run with trl 1.16.0"
        ),
        "llamafactory 0.9.1 to 0.9.5 model/model_utils/moe.py `configure_moe`: by model_type",
    ),
    reads=(*keys("|".join(TRL), "router_aux_loss_coef"), "llamafactory:moe_aux_loss_coef"),
)
def balancing_of_no_experts(run: LintContext) -> Iterator[Finding]:
    """A loss that balances experts, for a model that has none."""
    if run.model is None or experts(run) or run.model.architecture.kind == "diffusion":
        return
    for document in run.of("llamafactory"):
        at = document.get("moe_aux_loss_coef")
        if at is not None and at.value and not document.is_view:
            yield Finding(
                f"moe_aux_loss_coef does nothing for {family(run)}",
                (at.label("not read"),),
                ("the model has no experts to balance",),
                "remove it",
                severity="warning",
                consequence="silent",
            )
    for document in run.of(*TRL):
        at = document.get("router_aux_loss_coef")
        if at is not None and at.value and not document.is_view and run.runs(_SINCE) is not False:
            yield Finding(
                f"router_aux_loss_coef is refused for {family(run)}",
                (at.label("no router"),),
                ("there is no auxiliary loss to weight",),
                "remove it",
            )


_SAID: Final = (
    "zero_optimization.leaf_module",
    "zero_optimization.stage3_module_granularity_threshold",
)


@rule(
    "experts-are-no-leaf",
    "error",
    "step",
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
    reads=("deepspeed:zero_optimization.stage",),
)
def experts_are_no_leaf(run: LintContext) -> Iterator[Finding]:
    """Experts at stage 3 that each rank gathers in its own order."""
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


def _kind(run: LintContext) -> str:
    """The family of the run's experts: as the catalogue knows it, or by the model's name."""
    if run.model is None:
        return named_family(run)
    return family(run) if experts(run) else ""


@rule(
    "experts-without-balancing",
    "note",
    "silent",
    consumers=("llamafactory",),
    sources=(
        (
            "LLaMA-Factory 0.9.5 model/model_utils/moe.py `configure_moe`: returns unless "
            "moe_aux_loss_coef is set"
        ),
        "arXiv 2101.03961 (Switch Transformers), section 2.2: the load balancing loss",
    ),
    reads=("llamafactory:*",),
)
def experts_without_balancing(run: LintContext) -> Iterator[Finding]:
    """A router is trained without the loss that spreads tokens over experts."""
    if not experts(run) or has_adapter(run):
        return
    for document in run.of("llamafactory"):
        method = document.get("finetuning_type")
        coefficient = document.get("moe_aux_loss_coef")
        if method is None or method.value != "full":
            continue
        if coefficient is None or coefficient.value in (0, None):
            yield Finding(
                f"the router of {family(run)} is trained without its balancing loss",
                ((coefficient or method).label("no moe_aux_loss_coef"),),
                ("LLaMA-Factory only asks the model for router logits where it is set",),
                "write moe_aux_loss_coef: 0.001",
            )


_KEY: Final = "deepspeed_config.deepspeed_moe_layer_cls_names"


@rule(
    "leaf-class-of-another-model",
    "error",
    "init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py "
            "`DeepSpeedPlugin.set_moe_leaf_modules`: Could not find a transformer layer class "
            "called"
        ),
    ),
    reads=(f"accelerate:{_KEY}",),
)
def leaf_class_of_another_model(run: LintContext) -> Iterator[Finding]:
    """The blocks that are to be leaves are of another model."""
    own, known = BLOCKS.get(family(run)), frozenset(BLOCKS.values())
    if own is None:
        return
    for place in run.each("accelerate", _KEY):
        if not isinstance(place.value, str):
            continue
        for name in place.value.split(","):
            if name in known and name != own:
                yield Finding(
                    f"{family(run)} has no module of class {name}",
                    (place.label("refused"),),
                    (f"its experts are in {own}",),
                    f"write {own}",
                    Fix((place.replaced(own),), "safe") if place.value == name else None,
                )


_KEYS: Final = (
    ("deepspeed", "zero_optimization.leaf_module"),
    ("accelerate", "deepspeed_config.deepspeed_moe_layer_cls_names"),
)


@rule(
    "leaf-modules-below-stage-3",
    "note",
    "silent",
    consumers=("deepspeed", "accelerate"),
    sources=(
        (
            "deepspeed 0.18.9, 0.19.8 runtime/zero/parameter_offload.py: the only reader of leaf "
            "modules"
        ),
    ),
    reads=tuple(f"{kind}:{key}" for kind, key in _KEYS),
)
def leaf_modules_below_stage_3(run: LintContext) -> Iterator[Finding]:
    """Leaf modules at a stage that gathers none."""
    stage = stage_of(run)
    if stage.value not in (0, 1, 2):
        return
    for kind, key in _KEYS:
        for place in run.each(kind, key):
            yield Finding(
                f"leaf modules do nothing at stage {stage.value}",
                (place.key_label("not read"), *also(stage.place)),
                ("only stage 3 gathers parameters module by module",),
                "remove it",
                Fix((place.removed(),), "safe"),
            )
