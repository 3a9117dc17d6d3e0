"""A diffusion model whose frozen parts are loaded in shards that nobody gathers."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_FLAG: Final = "deepspeed_config.zero3_init_flag"


def _check(run: Run) -> Iterator[Finding]:
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
            "accelerate heeds before 1.0",
            Fix((flag.replaced(False),), "unsafe"),
        )


RULE = Rule(
    name="text-encoders-under-zero-3-init",
    severity="warning",
    consequence="step",
    consumers=(
        "accelerate",
        "diffusers",
    ),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `set_deepspeed_weakref`; transformers"
            " 5.23.0 modeling_utils.py `get_init_context`: zero.Init around every model while the "
            "flag is on"
        ),
        "FlyMyAI/flymyai-lora-trainer#40; huggingface/transformers#22705",
    ),
    check=_check,
)
