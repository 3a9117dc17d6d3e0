"""Quantised formats that cannot be trained, and options that are refused beside them."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.facts.lora import loras
from tunec.compiler.lints.facts.precision import (
    BLOCKS,
    NAMED,
    QUANTISED,
    Base,
    blocks,
    kept,
    quantised,
    stored_form,
)
from tunec.compiler.lints.facts.training_loop import configs, is_started_by_trl
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.models.published_form import TITLES

_METHODS: Final = {
    "llamafactory": ("finetuning_type", ("full", "freeze")),
    "simpletuner": ("model_type", ("full",)),
    **dict.fromkeys(("hf", "sft"), ("full_finetune", (True, "True", "true"))),  # artidoro/qlora
}
"""The key that sets what is trained, and its words for training the base itself."""
_INT4: Final = re.compile(r"(?i)minicpm.*-int4/?$")
_EIGHT: Final = "load_in_8bit"
_FLOATS: Final = ("bf16", "fp16", "fp32", "bfloat16", "float16", "float32")
"""Words that some files use for a base that is not quantised; word-not-taken reports them."""
_WHEN: Final[dict[str, Consequence]] = {
    "axolotl": "parse",
    "llamafactory": "parse",
    "simpletuner": "parse",
}


@rule(
    "error",
    "init",
    consumers=("transformers", "axolotl", "llamafactory", "simpletuner"),
    reads=(
        *QUANTISED,
        *NAMED,
        *keys("hf", "quantization_bit", "bits", "tune_llm"),
        "model:full_finetuning",
    ),
)
def full_fine_tune_of_quantised_base(run: LintContext) -> Iterator[Finding]:
    """A quantised base is itself trained, without an adapter."""
    yield from _of_scripts(run)
    yield from _of_unsloth(run)
    base = quantised(run) or _stored(run)
    if base is None or base.form in _FLOATS or _is_excused(base):
        return
    method, kind = _method(base), base.document.kind
    if method is None and not _has_no_adapter(run, base):
        return
    yield Finding(
        f"the base is quantised to {base.form}, and no adapter is trained on it",
        (
            base.place.label("these weights cannot be moved by an optimizer"),
            *also(method, "trains the base itself"),
        ),
        ("quantised weights are integers without gradients",),
        "train a LoRA adapter on it, or do not quantise it",
        consequence="load" if method and method.path == "full_finetune" else _WHEN.get(kind),
    )


def _of_scripts(run: LintContext) -> Iterator[Finding]:
    """Report scripts that quantise, or load a quantised base, and train all weights by default."""
    for document in run.of("hf"):
        bits, model = document.get("quantization_bit"), document.get("model_name_or_path")
        is_glm = any(document.get(key) for key in ("prompt_column", "response_column"))
        if bits is not None and is_glm and not document.is_view:
            tuned = document.get("pre_seq_len") or "pre_seq_len" in document.unknown
            if not tuned and bits.value in (4, 8):
                yield _whole(bits, f"{bits.value} bits", "write --pre_seq_len, or drop the bits")
        yield from _by_bits(document)
        tunes, lora = (str(document.value(key)).lower() for key in ("tune_llm", "use_lora"))
        is_whole = tunes == "true" and lora != "true"
        if is_whole and model is not None and _INT4.search(str(model.value)):
            yield _whole(model, "int4", "take the checkpoint that is not quantised")


def _of_unsloth(run: LintContext) -> Iterator[Finding]:
    """Report bits beside full tuning in Unsloth, which then loads the weights in 16 bits."""
    for document in run.of("model"):
        whole, four, eight = (
            where(document, f"{key}=true") for key in ("full_finetuning", "load_in_4bit", _EIGHT)
        )
        bits = four or eight
        if whole is not None and bits is not None and not document.is_view:
            yield Finding(
                f"{bits.path} does nothing beside full_finetuning",
                (bits.label("turned off"), whole.label("", primary=False)),
                ("Unsloth prints a line, and loads the weights in 16 bits",),
                f"remove {bits.path}, or full_finetuning",
                severity="warning",
                consequence="silent",
            )


def _by_bits(document: Document) -> Iterator[Finding]:
    """Report `bits` without a LoRA flag in LLaVA's script and the scripts derived from it."""
    at, lora = document.get("bits"), document.get("lora_enable")
    is_one = any(document.get(key) for key in ("vision_tower", "freeze_vision_tower"))
    if at is None or not is_one or document.is_view or "lora_enable" in document.unknown:
        return
    if at.value in (4, 8) and (lora is None or str(lora.value).lower() != "true"):
        yield _whole(at, f"{at.value} bits", "write --lora_enable True, or drop the bits")


def _whole(at: Place, form: str, help_: str) -> Finding:
    return Finding(
        f"the base is quantised to {form}, and no adapter is trained on it",
        (at.label("these weights cannot be moved by an optimizer"),),
        ("quantised weights are integers without gradients",),
        help_,
    )


def _stored(run: LintContext) -> Base | None:
    """The base of a checkpoint whose name marks it as stored quantised."""
    found = stored_form(run)
    return Base(*found) if found is not None else None


def _method(base: Base) -> Place | None:
    key, words = _METHODS.get(base.document.kind, ("", ()))
    place = base.document.get(key) or base.document.get(key.upper())
    return place if place is not None and place.value in words else None


def _is_excused(base: Base) -> bool:
    """Whether the trainer itself accepts the combination."""
    keys = {"axolotl": ("inference",), "simpletuner": ("controlnet", "i_know_what_i_am_doing")}
    return any(base.document.value(key) for key in keys.get(base.document.kind, ()))


def _has_no_adapter(run: LintContext, base: Base) -> bool:
    """Whether there is no adapter; LLaMA-Factory and SimpleTuner have one by default.

    Flags of a script may belong to another program, which may build an adapter itself; so may the
    code that reads a `model_args.yaml`.
    """
    if base.document.kind == "axolotl":
        return not base.document.value("adapter")
    return _is_trl(run, base) and not run.of("peft")


def _is_trl(run: LintContext, base: Base) -> bool:
    """Whether TRL's own scripts read the config; they build an adapter only for `use_peft`."""
    document = base.document
    if document.kind not in TRL:
        return False
    if document.format == "shell" and not is_started_by_trl(run, document):
        return False
    if any(document.value(word) is True for word in _OF_OTHERS):
        return False
    return document.value("use_peft") is not True


_OF_OTHERS: Final = ("use_lora", "use_qlora")
"""Keys for an adapter that TRL does not have: another script, which has them, reads the file."""


_NEVER: Final = frozenset(
    {
        *("fbgemm_fp8", "higgs", "spqr", "vptq", "gguf", "nvfp4", "metal", "quark"),
        *("auto-round", "gemma"),
    }
)
"""transformers 5.23.0 quantizers/quantizer_*.py: methods whose `is_trainable` is false."""
_REFUSED: Final = "transformers>=5.23"
"""Releases in which `quantization-setting-refused` reports a word of torchao earlier."""


_ADAPTS_FP8: Final = "transformers>=5.22"
_LOADED_BY: Final = ("hf", "axolotl", *TRL)


@rule("error", "init", consumers=("transformers",), reads=(*BLOCKS, *NAMED), hardware=True)
def quantisation_without_training(run: LintContext) -> Iterator[Finding]:
    """A base is quantised in a format that transformers cannot train, with or without adapters."""
    yield from _published(run)
    trainer = next(iter(run.of("trainer")), None)
    for block in blocks(run):
        at = block.document.get(f"{block.path}.quant_method")
        if at is None or (trainer is None and not _trains(block)):
            continue
        if any(block.value.get(f"load_in_{bits}bit") is True for bits in (4, 8)):
            continue
        if isinstance(at.value, str) and at.value in _NEVER:
            yield _finding(at, at.value, at)
        elif at.value == "torchao" and run.runs(_REFUSED) is not True:
            kind = block.document.get(f"{block.path}.quant_type")
            if kind is not None and "int4" in str(kind.value):
                yield _finding(kind, f"torchao's {kind.value}", at)


def _published(run: LintContext) -> Iterator[Finding]:
    """Report checkpoints in MXFP4 or block-wise FP8, which devices with that format keep."""
    form, name = kept(run) or ("none", None)
    if name is None or name.document.kind not in _LOADED_BY:
        return
    adapts = form == "fp8" and run.runs(_ADAPTS_FP8)
    if adapts is True and not _has_no_adapter(run, Base(form, name)):
        return
    title, expands = TITLES[form], f"{_CONFIGS[form]}(dequantize=True)"
    is_axolotl = name.document.kind == "axolotl"
    may_expand = form == "mxfp4" and not is_axolotl
    yield Finding(
        f"a base stored in {title} is not trained, with an adapter or without"
        if adapts is not True
        else f"a base stored in {title} is not trained without an adapter",
        (name.label(f"published in {title}"),),
        (_UNTRAINED, *((_EXPANDED,) if may_expand else ())),
        f"write model_quantization_config: {_CONFIGS[form]}, and dequantize: true among its kwargs"
        if is_axolotl
        else f"load it with {expands}, or use a checkpoint in bf16",
        severity="warning" if adapts is None or may_expand else None,
    )


_CONFIGS: Final = {"mxfp4": "Mxfp4Config", "fp8": "FineGrainedFP8Config"}
_UNTRAINED: Final = "transformers keeps the form, and its Trainer refuses the model"
_EXPANDED: Final = "it is expanded to bf16 where triton or the package `kernels` is absent"


def _trains(block: Place) -> bool:
    return any(block.document.get(key) for key in ("output_dir", "learning_rate"))


def _finding(at: Place, form: str, method: Place) -> Finding:
    return Finding(
        f"a base quantised by {form} is not trained, with an adapter or without",
        (at.label("refused"), *([method.label("", primary=False)] if method != at else [])),
        ("the model is quantized with a method that does not support training",),
        "use load_in_4bit: true, or a form that trains adapters (gptq, hqq, quanto, eetq)",
    )


_TRAINERS: Final = (*TRL, "llamafactory", "axolotl")


@rule(
    "warning",
    "step",
    consumers=("transformers", "axolotl", "llamafactory", "trl"),
    reads=("axolotl:gptq", *keys("trainer|axolotl", "bf16", "pure_bf16")),
)
def stored_form_not_for_training(run: LintContext) -> Iterator[Finding]:
    """The kernels of a stored quantised checkpoint cannot train as the file requests."""
    yield from _exllama(run)
    found = stored_form(run)
    if found is not None and found[0] == "awq":
        yield from _in_bf16(run)


def _exllama(run: LintContext) -> Iterator[Finding]:
    """Report ExLlama's kernel, which has no gradient and is on by default."""
    for document in configs(run):
        at, off = where(document, "gptq"), document.get("gptq_disable_exllama")
        if at is None or (off is not None and off.value is True):
            continue
        yield Finding(
            "a GPTQ base is trained with ExLlama's kernel on",
            (at.label("no gradient goes through it"), *also(off)),
            ("the checkpoint's own configuration decides by default, and has it on",),
            "write gptq_disable_exllama: true",
        )


def _in_bf16(run: LintContext) -> Iterator[Finding]:
    found = stored_form(run)
    if found is None or found[1].document.kind not in _TRAINERS or not _is_adapted(run):
        return
    name = found[1]
    if name.document.format == "shell" and not is_started_by_trl(run, name.document):
        return
    half = name.document.get("bf16") or name.document.get("pure_bf16")
    if half is None or half.value is not True:
        return
    yield Finding(
        "an AWQ base is trained in bf16",
        (half.label("its kernels compute in fp16"), name.label("", primary=False)),
        ("with Triton's kernels: Both operands must be same dtype. Got fp16 and bf16",),
        "train in fp16, or quantise a base of full precision when it is loaded",
        severity="note" if _is_as_shipped(name) else None,
    )


_SEES: Final = re.compile(r"(?i)vl|vision|omni")


def _is_as_shipped(name: Place) -> bool:
    """Whether the name is as in LLaMA-Factory 0.9.4 examples/train_qlora/llama3_lora_sft_awq.yaml.

    autoawq 0.2.9 modules/linear/gemm.py casts the inputs and outputs of its own kernel.
    """
    return name.document.kind == "llamafactory" and not _SEES.search(str(name.value))


def _is_adapted(run: LintContext) -> bool:
    return any(True for _ in loras(run)) or run.value("adapter.kind", "none") != "none"


Test = Callable[[Document, Any], bool]


def _on(_: Document, value: Any) -> bool:
    return value is True


def _is_several(_: Document, value: Any) -> bool:
    return len(value) > 1 if isinstance(value, list) else "," in str(value or "")


def _beside_adapter(document: Document, value: Any) -> bool:
    return value is True and bool(document.value("adapter_name_or_path"))


def _is_auto(document: Document, value: Any) -> bool:
    return bool(value == "auto") and document.value("do_train") is True


def _by_lora_in_8_bits(document: Document, value: Any) -> bool:
    return value is True and document.value("adapter") == "lora" and _in_8_bits(document)


def _in_8_bits(document: Document) -> bool:
    return document.value("load_in_8bit") is True


def _is_fp8(document: Document, value: Any) -> bool:
    return bool(value == "fp8" and document.value("base_model_precision") != "fp8-torchao")


_REFUSED_BESIDE: Final[tuple[tuple[str, str, Test, str], ...]] = (
    (
        "llamafactory",
        "pissa_init",
        _on,
        "run scripts/pissa_init.py on the base before it is quantised",
    ),
    ("llamafactory", "resize_vocab", _on, "resize the base before it is quantised"),
    ("llamafactory", "create_new_adapter", _beside_adapter, "merge the old adapter first"),
    ("llamafactory", "adapter_name_or_path", _is_several, "merge the adapters first"),
    ("llamafactory", "quantization_device_map", _is_auto, "leave it out in training"),
    ("llamafactory", "fp8", _on, "remove fp8, or do not quantise the base"),
    ("axolotl", "lora_mlp_kernel", _by_lora_in_8_bits, "use 4 bits, or no kernels"),
    ("axolotl", "lora_qkv_kernel", _by_lora_in_8_bits, "use 4 bits, or no kernels"),
    ("axolotl", "lora_o_kernel", _by_lora_in_8_bits, "use 4 bits, or no kernels"),
    ("simpletuner", "mixed_precision", _is_fp8, "use bf16"),
)
"""Kind of file, key, the test for refused values, and the help."""


@rule(
    "error",
    "parse",
    consumers=("llamafactory", "axolotl", "simpletuner"),
    reads=tuple(f"{kind}:{key}" for kind, key, _, _ in _REFUSED_BESIDE),
)
def refused_beside_quantisation(run: LintContext) -> Iterator[Finding]:
    """Options that a trainer refuses beside a quantised base."""
    base = quantised(run)
    if base is None:
        return
    for kind, key, is_refused, mended in _REFUSED_BESIDE:
        place = base.document.get(key) if base.document.kind == kind else None
        if place is not None and is_refused(base.document, place.value):
            yield _beside_quantisation(place, base.place, mended)


def _beside_quantisation(place: Place, base: Place, mended: str) -> Finding:
    return Finding(
        f"{place.path} cannot be combined with a quantised base",
        (place.key_label("refused"), base.label("quantised", primary=False)),
        (),
        mended,
    )
