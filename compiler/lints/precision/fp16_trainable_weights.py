"""fp16 with loss scaling over trained weights that are fp16 themselves."""

from collections.abc import Iterator
from dataclasses import replace

from tunec.compiler.lints.adapter.lora import has_adapter
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.diffusion.examples import commands
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.precision.words import dtype_of, loaded_in, on_deepspeed
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_CASTS = "peft>=0.12"
"""From then on `get_peft_model` turns adapters in fp16 and bf16 to fp32."""


def _check(run: Run) -> Iterator[Finding]:
    yield from _of_examples(run)
    yield from _of_cookbook(run)
    yield from _unscaled(run)
    scaled = _scaled(run)
    if scaled is None or on_deepspeed(run) or _is_quantised(run):
        return
    for place in loaded_in(run, "fp16"):
        is_certain = _is_certain(run, place)
        if is_certain is not None:
            found = _finding(place, scaled, is_certain=is_certain or _is_whole(run, place))
            yield found if is_certain else replace(found, severity="warning")


def _of_examples(run: Run) -> Iterator[Finding]:
    """LoRA scripts of diffusers turn adapters to fp32 where their own flag says fp16."""
    launched = run.said("launch", "flags.mixed_precision") or run.said(
        "accelerate", "mixed_precision"
    )
    if launched is None or launched.value != "fp16":
        return
    for document, script in commands(run):
        is_open = "mixed_precision" in document.unknown
        if "lora" in script and document.get("mixed_precision") is None and not is_open:
            yield Finding(
                f"the launcher says fp16, and {script}.py is not told",
                (launched.label("the adapters are made in fp16"),),
                (
                    "the first step ends in `Attempting to unscale FP16 gradients`",
                    "it turns adapters to fp32 only where its own flag is fp16",
                ),
                "write --mixed_precision fp16 behind the script too",
            )


def _of_cookbook(run: Run) -> Iterator[Finding]:
    """llama-cookbook loads in fp16 and scales the loss; ShardedGradScaler of FSDP takes fp16."""
    for document in run.of("llama-cookbook"):
        half = where(document, "use_fp16")
        others = ("use_peft", "enable_fsdp", "quantization")
        if half is None or any(document.get(key) or key in document.unknown for key in others):
            continue
        yield _finding(half, half, is_certain=True)


def _unscaled(run: Run) -> Iterator[Finding]:
    """Weights in fp16 that a run in bf16 trains, whose small gradients nobody scales."""
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
                        "their gradients are fp16, where what is below 6e-8 is 0, and autocast in "
                        "bf16 comes without a scale for the loss"
                    ),
                ),
                "load in float32, or in bfloat16",
                severity="warning",
                consequence="silent",
            )


def _scaled(run: Run) -> Place | None:
    """Where fp16 with torch's GradScaler is turned on."""
    for kind, key, word in (
        ("trainer", "fp16", True),
        ("accelerate", "mixed_precision", "fp16"),
        ("launch", "flags.mixed_precision", "fp16"),
    ):
        for place in run.each(kind, key):
            if place.value is word or place.value == word:
                return place
    return None


def _is_quantised(run: Run) -> bool:
    return run.value("quantization.format", "none") not in (None, "none")


def _is_certain(run: Run, place: Place) -> bool | None:
    """Whether the trained weights are fp16: True, it depends (False), or they are not (None)."""
    if dtype_of(run.effective("peft", "adapter_dtype").value) == "fp16":
        return True
    if run.value("adapter.kind", "none") == "lora" or run.of("peft"):
        casts = run.runs(_CASTS)
        return None if casts else casts is False
    # a script's own flags, and the code around `model_args.yaml`, may yet add an adapter
    return place.document.kind in TRL and place.document.format != "shell"


def _is_whole(run: Run, place: Place) -> bool:
    """Whether the files that say how the model is loaded know of no adapter."""
    return place.document.kind == "model" and not run.of("peft")


def _finding(place: Place, scaled: Place, *, is_certain: bool) -> Finding:
    return Finding(
        "fp16 with loss scaling over trained weights in fp16",
        (
            place.label("trained in fp16"),
            *([scaled.label("scales the loss", primary=False)] if scaled != place else []),
        ),
        (
            "the first step ends in `Attempting to unscale FP16 gradients`",
            "get_peft_model turns adapters to fp32 (peft 0.12); add_adapter of diffusers does not",
        ),
        "load in float32 what is trained; fp16 then only computes",
        certain=is_certain,
    )


RULE = Rule(
    name="fp16-trainable-weights",
    severity="error",
    consequence="step",
    consumers=("torch", "peft", "diffusers"),
    sources=(
        "torch 2.13.0 amp/grad_scaler.py `GradScaler._unscale_grads_`: ValueError",
        (
            "meta-llama/llama-cookbook 0e00335 finetuning.py `main`: torch_dtype=torch.float16; "
            "utils/train_utils.py `train`: GradScaler; meta-llama/llama-cookbook#715"
        ),
        "peft 0.12.0 to 0.21.2 mapping.py `get_peft_model`: autocast_adapter_dtype=True",
        "torch 2.13.0 finfo(float16).smallest_normal 6.1e-5, smallest subnormal 6e-8",
        "diffusers 0.27.2 to 0.40.0 examples, `main`: cast_training_params; diffusers#6363",
        "huggingface/diffusers#6086, haotian-liu/LLaVA#363, 2U1/Qwen-VL-Series-Finetune#184",
    ),
    check=_check,
)
