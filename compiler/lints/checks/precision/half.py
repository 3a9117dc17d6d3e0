"""Training and evaluation in fp16."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.facts import ResolvedModel
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.diffusion import commands
from tunec.compiler.lints.facts.known_keys import kind_behind
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.precision import LAUNCHED, LOADED, dtype_of, loaded_in, on_deepspeed
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace
from tunec.schemas.models.overflows import overflow_source

_T5: Final = re.compile(
    r"((google|google-t5|bigscience)/)?((flan-|m|long-|u)?t5\b.*|T0(_?3B|pp?)?)"
)
"""T5 and models trained from it, whose files hold fp32 but whose activations were bf16."""
_FP16: Final = (
    *keys("trainer|axolotl|minicpm-v|sat", "fp16"),
    *("axolotl:float16", "deepspeed:fp16.enabled", "glm4:training_args.fp16"),
    *("llama-cookbook:use_fp16", "diffusers:mixed_precision", "simpletuner:*", *LAUNCHED),
    *("ms-swift:fp16", "unsloth:*"),
)
"""Keys and values that request fp16, or leave the choice to the device."""
_OVERFLOWS: Final = re.compile(r"(^|[/_-])gemma-?[234]n?\b", re.IGNORECASE)
"""Models whose activations are known to overflow fp16; a device without bf16 does not make the
finding milder for them."""

_TURNED_NAN: Final = re.compile(r"(^|[/_-])(flux|minicpm-v)\b", re.IGNORECASE)
"""Models for which users report such runs (OpenBMB/MiniCPM-V#496; huggingface/diffusers#9237). Most
other models also train in fp16, so for them it is a note."""


@rule("warning", "step", consumers=("torch",), reads=_FP16, hardware=True)
def bf16_model_in_fp16(run: LintContext) -> Iterator[Finding]:
    """A model that was trained in bf16 is fine-tuned in fp16."""
    yield from _model_of_examples(run)
    computed = run.observed("precision.compute")
    place, model = run.place(computed), run.model
    if computed is None or computed.value != "fp16" or place is None:
        return
    if str(place.document.value("do_train")).lower() in ("0", "false"):
        return  # nothing is scaled, and nothing is updated
    path = (run.model_name or "") if model is None else model.path
    overflows = _is_seen_to_overflow(path, model)
    if overflows or (model is not None and _is_bf16(model)):
        asked = (each for each in run.each("trainer", "fp16") if str(each.value).lower() == "true")
        found = _model_finding(run, path, model, next(asked, place))
        # a language model's adapter leaves the base, whose activations stay where they were
        is_soft = run.value("adapter.kind") == "lora" and not overflows
        yield replace(found, severity="note") if is_soft else found


def _is_seen_to_overflow(path: str, model: ResolvedModel | None) -> bool:
    if model is not None and overflow_source(model.architecture.family, model.stored_dtype):
        return True
    return _T5.fullmatch(path) is not None or _OVERFLOWS.search(path) is not None


def _is_bf16(model: ResolvedModel) -> bool:
    """Whether the weights are known to be published in bf16; a card may leave the dtype out."""
    is_known = model.card is None or "stored_dtype" in model.card.model_fields_set
    return model.stored_dtype == "bf16" and is_known


def _model_of_examples(run: LintContext) -> Iterator[Finding]:
    """Report models of diffusers' scripts, whose own flags name the model and the precision."""
    for document in run.of("diffusers"):
        place, named = (
            document.get(key) for key in ("mixed_precision", "pretrained_model_name_or_path")
        )
        if (
            place is None
            or place.value != "fp16"
            or named is None
            or not isinstance(named.value, str)
        ):
            continue
        model = run.environment.model or run.resolve_model(named.value)
        if model is not None and _is_bf16(model):
            yield _model_finding(run, model.path, model, place)


def _model_finding(
    run: LintContext, path: str, model: ResolvedModel | None, place: Place
) -> Finding:
    device = run.environment.weakest
    cannot = device is not None and not device.supports("bf16")
    is_seen = _is_seen_to_overflow(path, model) or (
        not cannot and _TURNED_NAN.search(path) is not None
    )
    return Finding(
        f"{path} was trained in bf16, and the run computes in fp16",
        (place.label("fp16"),),
        (
            (
                "bf16 reaches 3.4e38, fp16 65504: activations that were learnt in bf16 may "
                "overflow, and the loss turns nan"
            ),
            *((f"{device.title} has no bf16 arithmetic",) if device and cannot else ()),
        ),
        "watch the loss scale, and keep layers that overflow in fp32" if cannot else "use bf16",
        severity=None if is_seen else "note",
    )


_PAIRS: Final = (
    (("trainer",), "fp16", "bf16"),
    (("trainer",), "fp16_full_eval", "bf16_full_eval"),
    (("deepspeed",), "fp16.enabled", "bf16.enabled"),
    (("axolotl",), "fp16", "bf16"),
)


@rule(
    "error",
    "parse",
    consumers=("transformers", "deepspeed", "axolotl"),
    reads=(*keys("trainer", "fp16", "fp16_full_eval"), "deepspeed:fp16.enabled", "axolotl:fp16"),
)
def fp16_and_bf16(run: LintContext) -> Iterator[Finding]:
    """fp16 and bf16 are both turned on."""
    yield from _filled(run)
    yield from _by_its_old_name(run)
    for kinds, half, brain in _PAIRS:
        for document in run.of(*kinds):
            if not document.is_view or kind_behind(document) != "axolotl":
                yield from _both(document, half, brain)


def _by_its_old_name(run: LintContext) -> Iterator[Finding]:
    """Report `bfloat16` beside fp16, which is read if there is no `bf16`."""
    for document in run.of("deepspeed"):
        if document.get("bf16") is None:
            yield from _both(document, "fp16.enabled", "bfloat16.enabled")


def _filled(run: LintContext) -> Iterator[Finding]:
    """Report both at `auto`: the trainer turns on one for training, the other for evaluation."""
    half, brain = (run.effective("deepspeed", f"{each}.enabled") for each in ("fp16", "bf16"))
    if "filled" not in (half.source, brain.source) or half.value is not True:
        return
    said = {name for each in ("fp16", "bf16") for name in (each, f"{each}_full_eval")}
    written = {name for name in said if (at := run.said("trainer", name)) and at.value is True}
    if brain.value is not True or len({name[:4] for name in written}) < 2:
        return  # a default of TRL's classes alone does not count
    yield Finding(
        "the trainer fills in both fp16.enabled and bf16.enabled",
        tuple(
            each.place.label("true", primary=each is half) for each in (half, brain) if each.place
        ),
        ("fp16 and fp16_full_eval fill in the one, bf16 and bf16_full_eval the other",),
        "train and evaluate in the same precision",
        consequence="init",
    )


def _both(document: Document, half: str, brain: str) -> Iterator[Finding]:
    first, second = document.get(half), document.get(brain)
    if first is None or second is None or first.value is not True or second.value is not True:
        return
    yield Finding(
        f"`{half}` and `{brain}` are both true",
        (first.label(""), second.label("", primary=False)),
        (),
        "keep one: bf16 where the hardware has it",
        consequence="init" if document.kind == "deepspeed" else None,
    )


fp16_on_cpu = rows(
    "fp16-on-cpu",
    "warning",
    "silent",
    consumers=("accelerate",),
    rows=tuple(
        Row(
            half,
            "fp16 with {1.path}: the run computes in fp32",
            "not taken up",
            "Accelerate turns on no autocast in fp16 and no loss scaling on a CPU",
            "remove fp16, or use bf16, which a CPU computes in",
            beside=("use_cpu|no_cuda=true",),
            beside_label="no GPU",
            files_only=True,
        )
        for half in ("trainer:fp16=true", "accelerate:mixed_precision=fp16")
    ),
)


_CASTS = "peft>=0.12"
"""Releases whose `get_peft_model` converts adapters from fp16 and bf16 to fp32."""


@rule(
    "error",
    "step",
    consumers=("torch", "peft", "diffusers"),
    reads=(*LAUNCHED, *LOADED, "llama-cookbook:use_fp16"),
)
def fp16_trainable_weights(run: LintContext) -> Iterator[Finding]:
    """fp16 with loss scaling, but the trained weights are themselves fp16."""
    yield from _trainable_of_examples(run)
    yield from _of_cookbook(run)
    yield from _unscaled(run)
    scaled = _scaled(run)
    if scaled is None or on_deepspeed(run) or _is_quantised(run):
        return
    for place in loaded_in(run, "fp16"):
        is_certain = _is_certain(run, place)
        if is_certain is not None:
            found = _trainable_finding(
                place, scaled, is_certain=is_certain or _is_whole(run, place)
            )
            yield found if is_certain else replace(found, severity="warning")


def _trainable_of_examples(run: LintContext) -> Iterator[Finding]:
    """Report LoRA scripts of diffusers in fp16 without their own flag, so with fp16 adapters."""
    launched = run.said("launch", "flags.mixed_precision") or run.said(
        "accelerate", "mixed_precision"
    )
    if launched is None or launched.value != "fp16":
        return
    for document, script in commands(run):
        is_open = "mixed_precision" in document.unknown
        if "lora" in script and document.get("mixed_precision") is None and not is_open:
            yield Finding(
                f"the launcher sets fp16, but {script}.py does not get it",
                (launched.label("the adapters are made in fp16"),),
                (
                    "the first step fails with `Attempting to unscale FP16 gradients`",
                    "it converts adapters to fp32 only where its own flag is fp16",
                ),
                "add --mixed_precision fp16 after the script too",
            )


def _of_cookbook(run: LintContext) -> Iterator[Finding]:
    """Report llama-cookbook's fp16 weights with loss scaling, except under FSDP.

    FSDP's ShardedGradScaler takes fp16 gradients.
    """
    for document in run.of("llama-cookbook"):
        half = where(document, "use_fp16")
        others = ("use_peft", "enable_fsdp", "quantization")
        if half is None or any(document.get(key) or key in document.unknown for key in others):
            continue
        yield _trainable_finding(half, half, is_certain=True)


def _unscaled(run: LintContext) -> Iterator[Finding]:
    """Report fp16 weights trained in a bf16 run, where no scaler protects small gradients."""
    half = run.said("trainer", "bf16")
    if half is None or half.value is not True or on_deepspeed(run) or _is_quantised(run):
        return
    if has_adapter(run):
        return
    for place in loaded_in(run, "fp16"):
        if place.document.kind in (*TRL, "model") and place.document.format != "shell":
            yield Finding(
                "bf16 over weights that are loaded and trained in fp16",
                (place.label("trained in fp16"), half.label("scales no loss", primary=False)),
                (
                    (
                        "their gradients are fp16, where values below 6e-8 become 0, and autocast "
                        "in bf16 does not scale the loss"
                    ),
                ),
                "load in float32, or in bfloat16",
                severity="warning",
                consequence="silent",
            )


def _scaled(run: LintContext) -> Place | None:
    """The place that turns on fp16 with torch's GradScaler."""
    for kind, key, word in (
        ("trainer", "fp16", True),
        ("accelerate", "mixed_precision", "fp16"),
        ("launch", "flags.mixed_precision", "fp16"),
    ):
        for place in run.each(kind, key):
            if place.value is word or place.value == word:
                return place
    return None


def _is_quantised(run: LintContext) -> bool:
    return run.value("quantization.format", "none") not in (None, "none")


def _is_certain(run: LintContext, place: Place) -> bool | None:
    """Whether the trained weights are fp16: True, perhaps (False), or no (None)."""
    if dtype_of(run.effective("peft", "adapter_dtype").value) == "fp16":
        return True
    if run.value("adapter.kind", "none") == "lora" or run.of("peft"):
        casts = run.runs(_CASTS)
        return None if casts else casts is False
    # a script's own flags, and the code around `model_args.yaml`, may yet add an adapter
    return place.document.kind in TRL and place.document.format != "shell"


def _is_whole(run: LintContext, place: Place) -> bool:
    """Whether the files that set how the model is loaded name no adapter."""
    return place.document.kind == "model" and not run.of("peft")


def _trainable_finding(place: Place, scaled: Place, *, is_certain: bool) -> Finding:
    return Finding(
        "fp16 cannot scale the loss of weights that are trained in fp16",
        (
            place.label("trained in fp16"),
            *([scaled.label("scales the loss", primary=False)] if scaled != place else []),
        ),
        (
            "the first step fails with `Attempting to unscale FP16 gradients`",
            "get_peft_model makes adapters fp32 (peft 0.12); add_adapter of diffusers does not",
        ),
        "load in float32 what is trained; fp16 then only computes",
        certain=is_certain,
    )


@rule(
    "error",
    "silent",
    consumers=("transformers",),
    reads=("trainer:fp16_full_eval", "trainer:bf16_full_eval"),
)
def full_eval_turns_half_on(run: LintContext) -> Iterator[Finding]:
    """16-bit evaluation turns 16-bit training on, through `auto` in DeepSpeed's file."""
    for dtype in ("fp16", "bf16"):
        evaluated = run.effective("trainer", f"{dtype}_full_eval")
        trained = run.effective("trainer", dtype)
        block = run.said("deepspeed", f"{dtype}.enabled")
        if evaluated.value is not True or evaluated.place is None or trained.value is not False:
            continue
        if block is None or block.value != "auto":
            continue
        yield Finding(
            f"{dtype}_full_eval turns {dtype} training on",
            (
                evaluated.place.label("meant for evaluation"),
                block.label(f"filled from {dtype} or {dtype}_full_eval", primary=False),
            ),
            (f"the Trainer fills {dtype}.enabled with true, and DeepSpeed casts the whole model",),
            f"write false for {dtype}.enabled in the DeepSpeed file, or leave the evaluation as is",
        )
