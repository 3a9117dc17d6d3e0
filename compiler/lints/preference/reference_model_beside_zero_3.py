"""A reference model of full size beside a policy that ZeRO-3 shards."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.preference.asked import PAIRED, preferences
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    stage = run.effective("deepspeed", "zero_optimization.stage")
    if stage.value != 3 or stage.place is None:
        return
    for document, name in preferences(run):
        at = _asked(document)
        if name not in PAIRED or at is None or run.value("adapter.kind") == "lora":
            continue
        if document.value("precompute_ref_log_probs") is True:
            continue
        size = run.model.architecture.parameters if run.model is not None else None
        yield Finding(
            f"{name.upper()} of a whole model holds a second one, the reference, under ZeRO-3",
            (at.label("needs a reference"), stage.place.label("", primary=False)),
            (
                *(
                    [f"{size / 1e9:.1f} billion parameters, {size * 2 / 2**30:.1f} GiB in bf16"]
                    if size
                    else []
                ),
                "the engine has to have it too: trl sees to it since 0.7.2",
                "a script that loads it beside fails with: 'weight' must be 2-D",
            ),
            "use LoRA, whose reference is the model without the adapter, or a loss without one",
            severity="note",
        )


def _asked(document: Document) -> Place | None:
    found = (document.get(key) for key in ("stage", "rl", "beta", "model_name_or_path"))
    return next((at for at in found if at is not None), None)


RULE = Rule(
    name="reference-model-beside-zero-3",
    severity="warning",
    consequence="step",
    consumers=("trl",),
    sources=(
        (
            "huggingface/trl#669, #687; trl 0.8.6 to 1.16.0 trainer/dpo_trainer.py: "
            "prepare_deepspeed(self.ref_model)"
        ),
        (
            "llamafactory 0.9.1 to 0.9.5 train/dpo/trainer.py, trainer_utils.py "
            "`create_ref_model`: a second model unless LoRA"
        ),
    ),
    check=_check,
)
