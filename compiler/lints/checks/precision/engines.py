"""Precision as engines and launchers take it."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.precision import LAUNCHED, computes_in_half, loaded_in, on_deepspeed
from tunec.compiler.lints.rule import Finding, keys, rule


@rule(
    "amp-beside-zero",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.18.9 runtime/engine.py `_do_optimizer_sanity_check`: Amp and "
        "ZeRO are not currently compatible; Cannot enable both amp with (legacy) fp16 or "
        "bfloat16 mode"
    ),
    reads=("deepspeed:amp.enabled",),
)
def amp_beside_zero(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's amp block beside ZeRO or 16-bit modes."""
    for amp in run.each("deepspeed", "amp.enabled"):
        if amp.value is not True or run.runs("deepspeed<0.19") is not True:
            continue
        stage = run.effective("deepspeed", "zero_optimization.stage")
        if isinstance(stage.value, int) and stage.value > 0 and stage.place is not None:
            other, word = stage.place, f"ZeRO stage {stage.value}"
        else:
            half = next((e for e in _half(run) if e.value is True), None)
            if half is None or half.place is None:
                continue
            other, word = half.place, half.place.path.partition(".")[0]
        yield Finding(
            f"amp beside {word}",
            (amp.label("apex amp"), other.label("", primary=False)),
            ("apex's amp wraps a plain optimizer; DeepSpeed 0.19 has taken it out",),
            "remove amp, and use bf16 or fp16",
        )


def _half(run: LintContext) -> list[Effective]:
    return [run.effective("deepspeed", f"{dtype}.enabled") for dtype in ("fp16", "bf16")]


_FLASH = ("flash_attention_2", "flash_attention_3")


@rule(
    "flash-attention-in-fp32",
    "error",
    "step",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 modeling_utils.py `_flash_attn_can_dispatch`: only supports "
            "torch.float16 and torch.bfloat16 dtypes, a warning"
        ),
        (
            "Dao-AILab/flash-attention 2.8 csrc/flash_attn/flash_api.cpp `mha_fwd`: FlashAttention "
            "only support fp16 and bf16 data type"
        ),
    ),
    reads=(
        *keys("model|trainer|axolotl", "attn_implementation", "model_init_kwargs"),
        "axolotl:flash_attention",
        "llamafactory:flash_attn",
        "llama-cookbook:use_fast_kernels",
        "simpletuner:*",
    ),
)
def flash_attention_in_fp32(run: LintContext) -> Iterator[Finding]:
    """FlashAttention 2 in a run that computes in fp32."""
    attention = run.observed("attention.implementation")
    place = run.place(attention)
    if attention is None or attention.value not in _FLASH or place is None:
        return
    whole = _fp32(run)
    if whole is None or run.value("quantization.format", "none") not in (None, "none"):
        return
    yield Finding(
        f"{attention.value} in a run of fp32",
        (place.label("fp16 and bf16 only"), whole.label("fp32", primary=False)),
        ("the kernel ends in `FlashAttention only support fp16 and bf16 data type`",),
        "turn bf16 or fp16 on, or use sdpa",
    )


def _fp32(run: LintContext) -> Place | None:
    """Where the run is said to be fp32, with nothing that computes in 16 bits."""
    if run.value("precision.compute") == "fp32":
        return run.place(run.observed("precision.compute"))
    if computes_in_half(run) is not False or _deepspeed_in_half(run):
        return None
    return next(loaded_in(run, "fp32"), None)


def _deepspeed_in_half(run: LintContext) -> bool:
    return any(
        run.effective("deepspeed", f"{dtype}.enabled").value is True for dtype in ("bf16", "fp16")
    )


@rule(
    "full-eval-turns-half-on",
    "error",
    "silent",
    consumers=("transformers",),
    sources=(
        "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `trainer_config_process`: "
        'fill_match("fp16.enabled", (args.fp16 or args.fp16_full_eval))'
    ),
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


@rule(
    "gradient-precision-ignored",
    "warning",
    "silent",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py `parse_cmdline_args`: "
            'args.gradient_precision = "unmodified" unless `is_optimizer_grad_fp32`'
        ),
        "bghira/SimpleTuner 2ac3e0996: remove recommendation for gradient_precision",
    ),
    reads=("simpletuner:gradient_precision",),
)
def gradient_precision_ignored(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner's gradient_precision, which no optimizer heeds."""
    for place in run.each("simpletuner", "gradient_precision"):
        if place.value != "fp32":
            continue
        yield Finding(
            "gradient_precision fp32 does nothing",
            (place.label("set back to unmodified"),),
            ("it holds only for optimizers that declare it, and none does",),
            "remove it",
            Fix((place.removed(),), "safe") if place.document.format == "json" else None,
        )


_KEYS = (
    "fp16.fp16_master_weights_and_grads",
    "bf16.bf16_master_weights_and_grads",
    "bf16.bf16_optimizer_states",
)
_ALL_STAGES = "deepspeed>=0.18"


@rule(
    "half-master-weights-without-zero",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.18.9 and 0.19.8 runtime/config.py `_do_error_check`: only with ZeRO stage "
        "1, 2, or 3; 0.14.5 to 0.17.6: fp16 only with stage 2"
    ),
    reads=keys("deepspeed", *_KEYS),
)
def half_master_weights_without_zero(run: LintContext) -> Iterator[Finding]:
    """Master weights in 16 bits at a ZeRO stage that does not have them."""
    stage = run.effective("deepspeed", "zero_optimization.stage")
    for key in _KEYS:
        for place in run.each("deepspeed", key):
            if _is_on(place.value) and stage.known:
                yield from _at(run, place, stage.value, stage.place)
    yield from _states_alone(run)


def _at(run: LintContext, place: Place, stage: object, where: Place | None) -> Iterator[Finding]:
    old = place.path.startswith("fp16") and run.runs(_ALL_STAGES) is False
    allowed = (2,) if old else (1, 2, 3)
    if stage in allowed or not isinstance(stage, int):
        return
    words = "stage 2" if old else "stages 1 to 3"
    yield Finding(
        f"{place.path.rpartition('.')[2]} at ZeRO stage {stage}",
        (place.label("refused"), *also(where)),
        (f"DeepSpeed supports it at {words}",),
        f"use {words.replace('stages', 'one of the stages')}, or remove it",
    )


def _is_on(value: object) -> bool:
    """Also as a text, which DeepSpeed takes for what it says."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _states_alone(run: LintContext) -> Iterator[Finding]:
    """Optimizer states in bf16 need master weights in bf16."""
    for place in run.each("deepspeed", "bf16.bf16_optimizer_states"):
        weights = place.document.value("bf16.bf16_master_weights_and_grads")
        if _is_on(place.value) and not _is_on(weights):
            yield Finding(
                "bf16_optimizer_states without bf16_master_weights_and_grads",
                (place.label("refused"),),
                (),
                "set both, or neither",
            )


_OWNERS = ("diffusers", "simpletuner")
_DIFFERS_OTHER = {"bf16": "fp16", "fp16": "bf16"}


@rule(
    "launcher-precision-differs",
    "warning",
    "silent",
    consumers=("accelerate", "transformers", "diffusers", "simpletuner"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`: the environment's "
            "ACCELERATE_MIXED_PRECISION, then fp16 or bf16 of the arguments over it"
        ),
        "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`",
        "simpletuner 4.10.1 helpers/training/trainer.py: Accelerator(mixed_precision=...)",
        "huggingface/diffusers 0.40.0 examples, `main`: Accelerator; huggingface/diffusers#6363",
    ),
    reads=LAUNCHED,
)
def launcher_precision_differs(run: LintContext) -> Iterator[Finding]:
    """The launcher and the trainer name different precisions."""
    yield from _of_examples(run)
    if on_deepspeed(run):
        return
    flag = run.said("launch", "flags.mixed_precision")
    file = run.said("accelerate", "mixed_precision")
    if flag is not None and file is not None and flag.value != file.value:
        yield _finding(file, flag, "the flag of `accelerate launch` wins")
    launched = flag or file
    if launched is None or str(launched.value) not in _DIFFERS_OTHER:
        return
    other = next(
        (e for e in run.each("trainer", _DIFFERS_OTHER[launched.value]) if e.value is True), None
    )
    if other is not None:
        yield _finding(
            launched, other, "the Trainer sets ACCELERATE_MIXED_PRECISION from its own settings"
        )
        return
    for said in run.each("trainer", launched.value):
        if said.value is False:
            yield _finding(
                said, launched, "the launcher's setting holds where the Trainer's are off"
            )


def _of_examples(run: LintContext) -> Iterator[Finding]:
    """Accelerator takes what a script hands to it for the last word: diffusers', SimpleTuner's."""
    launched = run.said("launch", "flags.mixed_precision") or run.said(
        "accelerate", "mixed_precision"
    )
    owned = (own for kind in _OWNERS for own in run.each(kind, "mixed_precision"))
    for own in owned:
        if launched is not None and _word(launched) != _word(own):
            yield _finding(launched, own, "Accelerator(mixed_precision=args.mixed_precision)")


def _finding(lost: Place, held: Place, note: str) -> Finding:
    return Finding(
        f"{lost.path} {_word(lost)} here, {held.path} {_word(held)} in {held.document.name}",
        (lost.label("does nothing"), held.label("holds", primary=False)),
        (note,),
        "say the same in both",
    )


def _word(place: Place) -> str:
    return str(place.value).lower()


_REFUSED_OTHER: Final = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}


@rule(
    "launcher-precision-refused",
    "error",
    "init",
    consumers=("accelerate",),
    sources=(
        "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py "
        "`DeepSpeedPlugin.set_mixed_precision`: ValueError; state.py `AcceleratorState`: "
        "ACCELERATE_MIXED_PRECISION where the script names none"
    ),
    reads=LAUNCHED,
)
def launcher_precision_refused(run: LintContext) -> Iterator[Finding]:
    """A precision of the launcher beside a ds_config.json that enables the other one."""
    launched = _launched(run)
    if launched is None or launched.word not in _REFUSED_OTHER:
        return
    mode = _REFUSED_OTHER[launched.word]
    if any(each.value not in (False, None) for each in run.each("trainer", mode)):
        return  # the Trainer sets the variable by its own arguments
    for at in run.each("deepspeed", f"{mode}.enabled"):
        if at.value is True and not at.document.is_view:
            yield Finding(
                f"mixed_precision {launched.value} is refused beside {mode} of {at.document.name}",
                (launched.label("refused"), at.label("enabled here", primary=False)),
                (f"accelerate: `--mixed_precision` cannot be set where {mode} is set in the file",),
                f"write {mode}, or let the file say `auto`",
            )


def _launched(run: LintContext) -> Place | None:
    flags = (each.get("flags.mixed_precision") for each in launches(run, "accelerate"))
    given = next((each for each in flags if each is not None), None)
    return given or next(_in_file(run), None)


def _in_file(run: LintContext) -> Iterator[Place]:
    """Of a file that names ds_config.json itself, `engine-settings-overridden` speaks."""
    for at in run.each("accelerate", "mixed_precision"):
        if at.document.get("deepspeed_config.deepspeed_config_file") is None:
            yield at
