"""Adapters that are not trained or not saved, that belong to another run, or reach a tower."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.lora import (
    Lora,
    adapters,
    has_adapter,
    is_minicpm,
    is_patched,
    is_true,
    lora_keys,
    loras,
)
from tunec.compiler.lints.facts.model import NoRegex, adapted
from tunec.compiler.lints.facts.precision import quantised, stored_form
from tunec.compiler.lints.facts.sharding import ungathered
from tunec.compiler.lints.facts.training_loop import real
from tunec.compiler.lints.kinds import own_keys
from tunec.compiler.lints.rule import Finding, keys, rule


@rule("error", "step", consumers=("peft",), reads=lora_keys("inference_mode"))
def inference_mode_in_training(run: LintContext) -> Iterator[Finding]:
    """The adapter is configured for inference, but the run trains it."""
    for lora in adapters(run):
        at = lora.place("inference_mode")
        if lora.document.kind not in ("peft", "glm4") or at is None or at.value is not True:
            continue
        trains = lora.document.kind == "glm4" or bool(run.of("trainer", "deepspeed", "accelerate"))
        if trains:
            yield Finding(
                "inference_mode is true: every adapter is frozen",
                (at.label("no parameter is trained"),),
                (
                    "PEFT writes true into the adapters that it saves; get_peft_model keeps it",
                    "PeftModel.from_pretrained(..., is_trainable=True) turns it off again",
                ),
                "write inference_mode: false",
                Fix((at.replaced(value=False),), "safe"),
                severity=None if lora.document.kind == "glm4" else "note",
            )


@rule("warning", "load", consumers=("peft",), reads=("peft:base_model_name_or_path",))
def adapter_of_another_base(run: LintContext) -> Iterator[Finding]:
    """The adapter's base is not the model that the run trains."""
    trained = _trained(run)
    for lora in adapters(run):
        at = lora.document.get("base_model_name_or_path")
        if lora.document.kind != "peft" or at is None or trained is None:
            continue
        if _are_others(at.value, trained.value):
            yield Finding(
                f"the adapter is for {at.value}, and the run trains {trained.value}",
                (at.label("the adapter's base"), trained.label("the run's", primary=False)),
                ("it loads only if all shapes are the same, and even then its values do not fit",),
                "write the same model in both",
            )


def _trained(run: LintContext) -> Place | None:
    for kind, key in (
        ("model", "model_name_or_path"),
        ("trainer", "model_name_or_path"),
        ("axolotl", "base_model"),
    ):
        for each in run.of(kind):
            if not each.is_view and (found := each.get(key)) is not None:
                return found
    return None


def _are_others(base: Any, trained: Any) -> bool:
    are_names = _is_repository(base) and _is_repository(trained)
    return are_names and str(base).lower() != str(trained).lower()


def _is_repository(value: Any) -> bool:
    is_text = isinstance(value, str) and value.count("/") == 1
    return is_text and not value.startswith((".", "/", "~")) and not value.endswith("/")


@rule(
    "error", "resume", consumers=("transformers<5",), reads=("deepspeed:zero_optimization.stage",)
)
def adapter_saved_empty(run: LintContext) -> Iterator[Finding]:
    """The adapter in a checkpoint of ZeRO stage 3 holds no tensors."""
    if not has_adapter(run) or run.deepspeed_reader == "plain":
        return
    found = ungathered(
        run,
        "the adapter saved at stage 3 holds no tensors: the shards are not gathered on save",
        "adapters stay in shards",
        "the trainer writes an empty adapter_model.safetensors, and the shards beside it",
    )
    if found is not None:
        yield found


_KEYS: Final = {
    "sft": (
        *("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save"),
        *("use_dora", "use_rslora", "lora_task_type", "lora_target_parameters"),
    ),
    "axolotl": (
        "lora_r",
        "lora_alpha",
        "lora_target_modules",
        "lora_target_linear",
        "peft_use_dora",
    ),
    "llamafactory": ("lora_rank", "lora_alpha", "lora_target", "lora_dropout", "additional_target"),
    "minicpm-v": ("lora_r", "lora_alpha", "lora_target_modules"),
}
_SWITCH: Final = {
    "sft": ("use_peft", "use_peft: true"),
    "axolotl": ("adapter", "adapter: lora"),
    "llamafactory": ("finetuning_type", "finetuning_type: lora"),
    "minicpm-v": ("use_lora", "use_lora: true"),
}


@rule(
    "error",
    "silent",
    consumers=("peft",),
    reads=(
        *(f"{kind}:{key}" for kind in _KEYS for key in _KEYS[kind]),
        *keys("dpo|grpo", *_KEYS["sft"]),
    ),
    unless="declared",
)
def lora_keys_without_adapter(run: LintContext) -> Iterator[Finding]:
    """LoRA's keys are set but nothing turns LoRA on, so the whole model is trained."""
    for document in run.documents:
        dialect = "sft" if document.kind in ("dpo", "grpo") else document.kind
        if document.is_view or dialect not in _KEYS or document.unknown:
            continue
        if dialect == "sft" and _has_own_switch(document):
            continue
        yield from _of(document, dialect)


def _has_own_switch(document: Document) -> bool:
    """Whether a script has its own switch for adapters.

    MiniCPM-V: `use_lora`; LLaVA: `lora_enable`; PEFT's examples: `use_peft_lora`.
    """
    own = own_keys(document.target, document.file, document.root.fields or ())
    return any("lora" in key or "peft" in key for key in own)


def _of(document: Document, dialect: str) -> Iterator[Finding]:
    switch, help_ = _SWITCH[dialect]
    said = document.get(switch)
    if dialect == "llamafactory":
        if said is None or said.value not in ("full", "freeze"):
            return
    elif said is not None and (said.value or said.value is False):
        return  # on, or turned off in so many words
    every = [document.get(key) for key in _KEYS[dialect]]
    found = [each for each in every if each is not None and each.value not in (None, "", [], False)]
    if len(found) < (1 if dialect == "sft" else 2):
        return
    is_leftover = dialect in ("llamafactory", "axolotl")  # often kept from a template of LoRA
    yield Finding(
        f"{quoted((each.path for each in found), 'and')} do nothing: no adapter is requested",
        (*(each.label("ignored", primary=at == 0) for at, each in enumerate(found)), *also(said)),
        ("the whole model is trained: with Adam about 16 bytes for each parameter",),
        f"write {help_}, or remove them",
        severity="warning" if is_leftover else None,
    )


_MOST_FULL: Final = 1.5e-4
_LEAST_LORA: Final = 5e-6
_LARGE: Final = 3_000_000_000
"""Parameters; makers tune smaller models at such rates: 3e-4 for 1.7 billion in
huggingface/alignment-handbook recipes/smollm2/sft/config.yaml."""
_BEGUN: Final = ("pretraining_dataset", "pretraining")
_ADAMS: Final = ("adamw", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "adam")


@rule(
    "note",
    "silent",
    consumers=("peft", "transformers"),
    reads=(
        *keys("trainer|axolotl|minicpm-v", "learning_rate"),
        "deepspeed:optimizer.params.lr",
        "glm4:training_args.learning_rate",
        "llama-cookbook:lr",
        "sat:lr",
        "simpletuner:*",
    ),
)
def learning_rate_of_the_other_method(run: LintContext) -> Iterator[Finding]:
    """A rate for adapters is used on the whole model, or a rate for the whole model on adapters."""
    rate, kind = run.observed("optimizer.learning_rate"), run.slot("adapter.kind")
    at = run.place(rate)
    value = real(rate.value) if rate is not None else None
    if at is None or value is None or kind is None or run.value("optimizer.name") not in _ADAMS:
        return
    is_full = kind.value == "none" and not list(loras(run)) and not _is_otherwise(run)
    if is_full and value > _MOST_FULL and _is_large(run):
        yield Finding(
            f"learning rate {value:g} is high for all of {_billions(run)} billion parameters",
            (at.label("usual for adapters"),),
            ("full fine-tunes of this size use 5e-6 to 5e-5: a tenth of what LoRA uses",),
            "write 1e-5 or 2e-5",
        )
    elif kind.value == "lora" and 0 < value < _LEAST_LORA and not run.of("dpo", "grpo"):
        if any(lora.document.value("rl") or _is_preference(lora) for lora in loras(run)):
            return
        yield Finding(
            f"learning rate {value:g} is low for LoRA",
            (at.label("usual for whole models"),),
            ("LoRA uses about ten times the rate of a full fine-tune: 1e-4 to 3e-4 with Adam",),
            "write 1e-4",
            severity="note",
        )


_PARTS: Final = ("tune_mm_mlp_adapter", "freeze_backbone", "freeze_llm")
"""Flags of LLaVA and its derivatives with which only the projector or the vision tower is
trained."""


def _is_otherwise(run: LintContext) -> bool:
    """Whether the run trains from scratch or in part, or its script adds its own adapters."""
    kinds = ("axolotl", "trainer")
    said = (each for key in _BEGUN for kind in kinds for each in run.each(kind, key))
    is_begun = any(each.value for each in said)
    is_part = any(each.value is True for key in _PARTS for each in run.each("trainer", key))
    return is_begun or is_part or any(map(_gives_adapters, run.of("hf", "sft")))


def _gives_adapters(document: Document) -> bool:
    """Whether a script's own flags turn LoRA on, such as `lora_enable True` or `use_lora`."""
    if document.kind != "hf" and document.format != "shell":
        return False
    own = ((path, each.value) for path, each in document.found.items() if "lora" in path)
    return any(value not in (False, None, "", "False", "false", 0) for _, value in own)


def _is_preference(lora: Lora) -> bool:
    stage = lora.document.value("stage", "sft")
    return stage not in ("sft", "pt")


def _is_large(run: LintContext) -> bool:
    return run.model is not None and run.model.architecture.parameters >= _LARGE


def _billions(run: LintContext) -> str:
    return f"{run.model.architecture.parameters / 1e9:.1f}" if run.model is not None else ""


_BITSANDBYTES: Final = "peft<0.10"
_PACKED: Final = ("gptq", "awq", "aqlm")
"""Stored forms, by a checkpoint's name, that do not support DoRA in any release."""


@rule("error", "init", consumers=("peft",), reads=lora_keys("use_dora"))
def dora_on_quantised_base(run: LintContext) -> Iterator[Finding]:
    """DoRA on a quantised base whose layers do not support it."""
    base, form = quantised(run), stored_form(run)
    for lora in loras(run):
        dora = lora.place("use_dora")
        if dora is None or not is_true(dora.value):
            continue
        if base is not None and run.runs(_BITSANDBYTES) is True:
            yield _dora_finding(lora, dora, (base.form, base.place), "or PEFT 0.10.0 and later")
        elif form is not None and form[0] in _PACKED:
            yield _dora_finding(lora, dora, form, "or a base of bitsandbytes")


def _dora_finding(lora: Lora, dora: Place, base: tuple[str, Place], otherwise: str) -> Finding:
    form, stored = base
    return Finding(
        f"PEFT refuses {lora.key('use_dora')} on a base that is quantised to {form}",
        (dora.label("refused"), stored.label("quantised", primary=False)),
        ("its layers raise: does not support DoRA yet, please set it to False",),
        f"use plain LoRA, {otherwise}",
    )


@rule("error", "load", consumers=("minicpm-v",), reads=keys("trainer|model|minicpm-v", "use_lora"))
def language_model_tuned_beside_lora(run: LintContext) -> Iterator[Finding]:
    """MiniCPM-V's script is set to train both the language model and LoRA in it."""
    for document in run.documents:
        if document.is_view or not is_minicpm(document):
            continue
        lora, llm = document.get("use_lora"), document.get("tune_llm")
        if lora is None or not is_true(lora.value):
            continue
        if llm is not None and not is_true(llm.value):
            continue
        yield Finding(
            "use_lora cannot stand beside tune_llm, which is true"
            f"{'' if llm is not None else ' by default'}",
            (
                lora.label("refused") if llm is None else llm.label("refused"),
                *([lora.label("", primary=False)] if llm is not None else []),
            ),
            ("The model cannot simultaneously adjust LLM parameters and apply LoRA",),
            "write tune_llm false",
        )


_LATE_TOWER: Final = re.compile(r"\bdelay_load\s*=\s*True")
"""The way in which haotian-liu/LLaVA llava/model/multimodal_encoder builds a tower without layers,
which are loaded after the adapters have been made."""

_ASKS_FOR_TOWER: Final = re.compile(r"\bfinetune_vision_layers\s*=\s*True")
"""The argument by which a call of Unsloth's `get_peft_model` adapts the tower on purpose."""


@rule(
    "warning",
    "silent",
    consumers=("peft",),
    reads=(*lora_keys("target_modules"), "axolotl:lora_target_linear"),
)
def lora_reaches_vision_tower(run: LintContext) -> Iterator[Finding]:
    """LoRA's targets also match layers of the vision tower."""
    if run.model is None or run.model.architecture.kind != "vision-language":
        return
    if run.own.shows(_LATE_TOWER):
        return
    tree = run.model.architecture
    for lora in loras(run):
        at, targets = _place(lora), lora.targets
        if at is None or targets is None or is_patched(run, lora):
            continue
        if lora.document.format == "python" and _ASKS_FOR_TOWER.search(lora.document.text):
            continue
        try:
            found = adapted(tree, targets, lora.excluded)
        except NoRegex:
            continue
        seen = sum(each.copies for each in found if each.part == "vision")
        every = sum(each.copies for each in found)
        if seen and seen < every:
            yield Finding(
                f"{seen} of the {every} layers that LoRA adapts are in the vision tower",
                (at.label("matches both"),),
                (
                    "activations of the tower are kept for the backward pass, image by image",
                    "names of projections are the same in both parts",
                ),
                "exclude the tower (exclude_modules), or write a regular expression",
            )


def _place(lora: Lora) -> Place | None:
    return lora.place("target_modules") or lora.document.get("lora_target_linear")
