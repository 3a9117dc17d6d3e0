"""Rules about settings that do not work with stage 3."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.conditions import severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.diffusion import configs, is_on, said
from tunec.compiler.lints.facts.launch import starts_an_example
from tunec.compiler.lints.facts.sharding import stage_of
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

_WHY: Final = (
    "the code that should gather the shards calls a context manager like a function: "
    "`'GatheredParameters' object is not callable`"
)


@rule("error", "step", consumers=("simpletuner",), reads=("simpletuner:*",))
def averaged_weights_under_zero_3(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner's averaged weights (EMA) are on under ZeRO-3."""
    stage = stage_of(run)
    if stage.value != 3:
        return
    for document in configs(run):
        average = said(document, "use_ema")
        if average is not None and is_on(average):
            yield Finding(
                "use_ema fails under ZeRO stage 3",
                (average.label("fails at the first update"), *also(stage.place)),
                (_WHY,),
                "use stage 2 with ema_validation: none, or remove use_ema",
            )


_MAPS: Final = ("device_map", "model_init_kwargs.device_map")
_LOADS: Final = ("low_cpu_mem_usage", "model_init_kwargs.low_cpu_mem_usage")
_REFUSES: Final = "transformers<4.50"


@rule("error", "load", consumers=("transformers",), reads=keys("model|trainer", *_MAPS, *_LOADS))
def device_map_under_zero_3(run: LintContext) -> Iterator[Finding]:
    """A model that stage 3 shards is given a device map."""
    stage = stage_of(run)
    if stage.value != 3 or run.deepspeed_reader == "plain":
        return
    for kind in ("model", "trainer"):
        for place in (each for key in _MAPS for each in run.each(kind, key)):
            if place.value not in (None, "none", "null", False):
                yield _refused(place, f"device_map {_word(place.value)}", stage.place)
        old, level = run.runs(_REFUSES), severity(run, _REFUSES)
        for place in (each for key in _LOADS for each in run.each(kind, key)):
            if place.value is True and old is not False:
                found = _refused(place, "low_cpu_mem_usage", stage.place)
                yield replace(found, severity=level)


def _refused(place: Place, what: str, stage: Place | None) -> Finding:
    return Finding(
        f"{what} is refused at ZeRO stage 3",
        (place.label("refused"), *also(stage)),
        ("stage 3 shards each weight as it is created: no single device holds it",),
        "remove it",
        Fix((place.removed(),), "unsafe"),
    )


def _word(value: Any) -> str:
    return value if isinstance(value, str) else "given as a mapping"


elastic_checkpoint_at_stage_3 = rows(
    "elastic-checkpoint-at-stage-3",
    "warning",
    "resume",
    consumers=("deepspeed",),
    rows=(
        Row(
            "deepspeed:zero_optimization.elastic_checkpoint=true",
            "elastic_checkpoint does nothing at stage 3",
            label="not read",
            why="a checkpoint of stage 3 loads on as many devices as wrote it",
            help="remove it; convert with ds_to_universal.py and resume with checkpoint: "
            '{{"load_universal": true}}',
            mend=Mend("safe", remove=True),
            effective=("deepspeed:zero_optimization.stage=3",),
        ),
    ),
)


_TASKS: Final = ("do_eval", "do_predict")


@rule("error", "init", consumers=("transformers",), reads=keys("hf|sft", *_TASKS))
def evaluation_below_stage_3(run: LintContext) -> Iterator[Finding]:
    """A run only evaluates, but its ZeRO stage shards no parameters."""
    stage = stage_of(run)
    if not run.of("deepspeed") or stage.value not in (0, 1, 2):
        return
    for document in run.of("hf", "sft"):
        task = _alone(document)
        if task is None:
            continue
        yield Finding(
            f"the trainer refuses {task.path} without do_train at ZeRO stage {stage.value}",
            (task.label("no optimizer is made"), *also(stage.place, "shards optimizer states")),
            (
                (
                    "a run that does not train starts DeepSpeed for inference, which takes stage 3 "
                    "only: the other stages shard gradients and states of an optimizer"
                ),
            ),
            "use stage 3, or evaluate without DeepSpeed",
            certain=document.value("do_train") is False or starts_an_example(run, document),
        )


def _alone(document: Document) -> Place | None:
    """The place of a task other than training, if the file does not request training.

    A script that trains whatever `do_train` is cannot be recognised: if flags leave `do_train` out,
    nothing is certain, unless the script is one of the examples, which require it.
    """
    trains = document.value("do_train")
    if trains is True or (trains is None and document.format != "shell"):
        return None
    found = (document.get(key) for key in _TASKS)
    return next((place for place in found if place is not None and place.value is True), None)


_GATHERED: Final = "each forward pass makes one token, and gathers all parameters once"

generation_under_zero_3 = rows(
    "generation-under-zero-3",
    "warning",
    "slow",
    consumers=("transformers", "deepspeed"),
    rows=(
        Row(
            "llamafactory:stage=ppo",
            "PPO under stage 3 gathers the whole model for every token that it generates",
            label="generates in every step",
            why=_GATHERED,
            help="use ZeRO stage 2 where the model fits a device",
            effective=("deepspeed:zero_optimization.stage=3",),
        ),
        Row(
            "hf:predict_with_generate=true",
            "generation under stage 3 gathers the whole model for every token",
            label="generates in evaluation",
            why=_GATHERED,
            help="evaluate by loss, or generate after training from the saved weights",
            effective=("deepspeed:zero_optimization.stage=3",),
        ),
    ),
)


_FLAG: Final = "deepspeed_config.zero3_init_flag"


@rule(
    "warning",
    "step",
    consumers=("accelerate", "diffusers"),
    reads=("accelerate:deepspeed_config.zero3_init_flag",),
)
def text_encoders_under_zero_3_init(run: LintContext) -> Iterator[Finding]:
    """A diffusion model's frozen parts are loaded in shards that are never gathered."""
    model, stage = run.model, stage_of(run)
    is_diffusion = bool(model and model.components) or bool(run.of("diffusers"))
    if not is_diffusion or stage.value != 3 or run.of("simpletuner"):
        return
    named = model.path if model is not None else "the pipeline"
    for document in run.of("accelerate"):
        flag = document.get(_FLAG)
        if flag is None or flag.value is not True:
            continue
        yield Finding(
            f"text encoders of {named} are loaded as shards outside the engine",
            (flag.label("every from_pretrained shards what it loads"), *also(stage.place)),
            ("only the prepared model is gathered as it runs: the others have empty weights",),
            "compute the text embeddings before training, or write zero3_init_flag: false, which "
            "accelerate respects before 1.0",
            Fix((flag.replaced(False),), "unsafe"),
        )


_SCATTER = "zero_optimization.reduce_scatter"


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:optimizer.type",))
def muon_needs_whole_gradients(run: LintContext) -> Iterator[Finding]:
    """Muon runs at stage 3, where each rank has only a part of the gradients."""
    stage = stage_of(run)
    kind = run.said("deepspeed", "optimizer.type")
    if kind is None or str(kind.value).lower() != "muon" or stage.value != 3:
        return
    if run.runs("deepspeed<0.18.9") is True:
        yield Finding(
            "DeepSpeed has no Muon for ZeRO-3 before 0.18.9",
            (kind.label("refused"), *also(stage.place)),
            (),
            "use stage 1 or 2, or a newer DeepSpeed",
        )
        return
    scatter = run.effective("deepspeed", _SCATTER)
    if scatter.value is not True:
        return
    edit = scatter.place.replaced(False) if scatter.place else kind.document.added(_SCATTER, False)
    yield Finding(
        "Muon at stage 3 needs reduce_scatter: false",
        (kind.label("refused"), *also(scatter.place), *also(stage.place)),
        (() if scatter.place else ("reduce_scatter is true by default",)),
        "write reduce_scatter: false",
        Fix((edit,), "safe") if edit else None,
    )
