"""Rules about tensor, pipeline and expert parallelism in DeepSpeed's file."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.model import BLOCKS, experts, family, named_family
from tunec.compiler.lints.facts.sharding import stage_of
from tunec.compiler.lints.facts.training_loop import is_number, is_whole
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule

pipeline_under_zero_2 = rows(
    "pipeline-under-zero-2",
    "warning",
    "init",
    consumers=("deepspeed",),
    rows=(
        Row(
            "deepspeed:pipeline{}",
            "a pipeline at ZeRO stage {1.value} is refused",
            label="for a PipelineModule",
            why=(
                "a pipeline sums gradients over micro batches before it reduces them",
                "a model that is no PipelineModule does not read this section",
            ),
            help="use stage 1, or remove pipeline",
            effective=("deepspeed:zero_optimization.stage=2|3",),
            at_key=True,
        ),
    ),
)


tensor_parallel_beside_adapters = rows(
    "tensor-parallel-beside-adapters",
    "error",
    "init",
    consumers=("deepspeed>=0.19.8",),
    rows=(
        Row(
            "deepspeed:tensor_parallel.autotp_size>1",
            "autotp_size {0.value} fails on a model with adapters",
            label="fails with a KeyError",
            why="AutoTP replaces the layers that hold the adapters, which ZeRO then cannot name",
            help="train all weights, or leave out tensor_parallel",
            effective=("(deepspeed:zero_optimization.stage=1|2)", "slot:adapter.kind=lora"),
        ),
    ),
)


tensor_parallel_under_zero_3 = rows(
    "tensor-parallel-under-zero-3",
    "error",
    "init",
    consumers=("deepspeed>=0.16.4,<0.19.4",),
    rows=(
        Row(
            "deepspeed:tensor_parallel.autotp_size>1",
            "autotp_size {0.value} is refused at ZeRO stage 3",
            label="refused",
            why="both split the same weights",
            help="use stage 1 or 2 beside tensor parallelism",
            effective=("deepspeed:zero_optimization.stage=3",),
        ),
    ),
)


_EXPERT_BLOCK: Final = "expert_parallel"


@rule(
    "error", "init", consumers=("deepspeed>=0.19.8",), reads=("deepspeed:expert_parallel.enabled",)
)
def expert_width_refused(run: LintContext) -> Iterator[Finding]:
    """AutoEP refuses the way in which experts are distributed over processes."""
    for on in run.each("deepspeed", f"{_EXPERT_BLOCK}.enabled"):
        if on.value is True:
            yield from _width(run)
            yield from _within(run)
            yield from _beside_tensors(run, on)


def _width(run: LintContext) -> Iterator[Finding]:
    world = run.world
    if world is None or world.rank == Rank.CATALOGUE or not is_whole(world.value):
        return
    for each in run.each("deepspeed", f"{_EXPERT_BLOCK}.autoep_size"):
        if is_whole(each.value) and each.value > 1 and world.value % each.value:
            yield Finding(
                f"{world.value} processes do not divide into groups of {each.value} for experts",
                (each.label("refused"), *also(run.place(world))),
                ("expert_parallel.autoep_size must divide the stage size",),
                f"write an autoep_size that divides {world.value}",
            )


def _within(run: LintContext) -> Iterator[Finding]:
    for each in run.each("deepspeed", f"{_EXPERT_BLOCK}.expert_tensor_parallel_size"):
        if is_whole(each.value) and each.value != 1:
            yield Finding(
                f"expert_tensor_parallel_size {each.value}: an expert is not split",
                (each.label("refused"),),
                ("it is reserved for tensor parallelism within an expert, and is not there yet",),
                "write expert_tensor_parallel_size: 1",
            )


def _beside_tensors(run: LintContext, on: Place) -> Iterator[Finding]:
    width = run.said("deepspeed", f"{_EXPERT_BLOCK}.autoep_size")
    tensors = run.said("deepspeed", "tensor_parallel.autotp_size")
    is_split = tensors is not None and is_whole(tensors.value) and tensors.value > 1
    if tensors is not None and is_split and (width is None or width.value == 1):
        yield Finding(
            f"autotp_size {tensors.value} beside experts that are not shared",
            ((width or on).label("refused"), *also(tensors)),
            ("AutoEP+AutoTP folding requires expert_parallel.autoep_size > 1",),
            "write an autoep_size above 1, or remove expert_parallel",
        )


_TENSOR_BLOCK: Final = "tensor_parallel"
_NESTED: Final = ("tp", "tensor_parallel")
"""`TPTrainingConfig.tensor_parallel` and its alias."""

_WHY: Final = (
    "autotp_size is 0 by default, which is off; only a script that calls tp_model_init "
    "splits the model otherwise"
)


@rule(
    "warning",
    "silent",
    consumers=("deepspeed>=0.16.4",),
    reads=keys("deepspeed", *(f"{_TENSOR_BLOCK}.{name}.tp_size" for name in _NESTED)),
)
def tensor_width_unread(run: LintContext) -> Iterator[Finding]:
    """The width of tensor parallelism is set at a key that DeepSpeed does not read."""
    asked = run.said("deepspeed", f"{_TENSOR_BLOCK}.autotp_size")
    if asked is not None and asked.value not in (0, 1):
        return
    for name in _NESTED:
        for width in run.each("deepspeed", f"{_TENSOR_BLOCK}.{name}.tp_size"):
            if is_number(width.value) and width.value > 1:
                yield Finding(
                    f"tp_size {width.value} without autotp_size: the model is not split",
                    (width.label("not a width by itself"),),
                    (_WHY,),
                    f"write {_TENSOR_BLOCK}: {{autotp_size: {width.value}}}",
                )


_SAID: Final = (
    "zero_optimization.leaf_module",
    "zero_optimization.stage3_module_granularity_threshold",
)


@rule("error", "hang", consumers=("deepspeed<0.18",), reads=("deepspeed:zero_optimization.stage",))
def experts_are_no_leaf(run: LintContext) -> Iterator[Finding]:
    """At stage 3 each rank gathers only the experts that its tokens chose, so the run hangs."""
    stage, kind = stage_of(run), _kind(run)
    block = BLOCKS.get(kind)
    if stage.value != 3 or stage.place is None or block is None:
        return
    if run.said("deepspeed", *_SAID) or run.of("llamafactory", "ms-swift"):
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
            "from DeepSpeed 0.18 on some blocks are leaves by default",
        ),
        f"write deepspeed_moe_layer_cls_names: {block} in accelerate's file, call "
        f"set_z3_leaf_modules(model, [{block}]), or run DeepSpeed 0.18 with leaf_module",
    )


def _kind(run: LintContext) -> str:
    """The model family of the run's experts, from the catalogue or from the model's name."""
    if run.model is None:
        return named_family(run)
    return family(run) if experts(run) else ""


_KEYS: Final = (
    ("deepspeed", "zero_optimization.leaf_module"),
    ("accelerate", "deepspeed_config.deepspeed_moe_layer_cls_names"),
)


@rule(
    "note",
    "silent",
    consumers=("deepspeed", "accelerate"),
    reads=tuple(f"{kind}:{key}" for kind, key in _KEYS),
)
def leaf_modules_below_stage_3(run: LintContext) -> Iterator[Finding]:
    """Leaf modules are set, but the ZeRO stage gathers no parameters."""
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
